"""Forecast of a running query by its own newest batches, next to the forecast from before its start.

No clock and no host: values only. A host reports every finished batch. The seconds of the next batch follow from a
line through the last batches (`MachineFit`), at rates that continue to grow as they did. The verdict compares the upper
end of that forecast with the interval in which the rows arrive: the trigger interval or, without one, the event time
that a batch covers. So it turns before the first batch exceeds its interval, unless the rate jumps within one batch.

The first forecast assumed rates, matches per row, rows in state, and a cost per row. The report names those that
failed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from watersmeet.planner.controller import MachineFit
from watersmeet.planner.explain import Explanation
from watersmeet.planner.live_report import ComparedFigure, FailedAssumption, LiveReport, Verdict
from watersmeet.planner.spark_forecast import NO_CORRECTION, SparkCorrection
from watersmeet.units import format_count, format_duration, format_percent, format_rate

#: Number of recent batches that a forecast uses.
RECENT_BATCHES = 12
#: Batches of a run from which costs are learned.
MIN_LEARNED_BATCHES = 3
#: Pairs of batches whose growth is extrapolated, and the growth per batch that counts.
GROWTH_PAIRS, MIN_GROWTH = 3, 1.03
#: Batches after the last one that have to fit if the rate continues to grow.
BATCHES_AHEAD = 2
#: The upper end of a forecast, in multiples of the scatter of the last batches.
UPPER_SCATTERS = 2.0
#: "Keeps up" comes back only below this share of the interval, so that the verdict does not alternate.
RECOVERED_SHARE = 0.9
#: An assumption of the first forecast has failed if it is off by more than this factor.
FAILED_FACTOR = 1.5
#: Growth factors are limited, so that a first small batch cannot suggest an explosion.
MAX_GROWTH = 4.0


class LiveBatch(NamedTuple):
    """A finished batch: its seconds, the interval in which its rows arrived, and its rows."""

    number: int
    took_s: float
    interval_s: float
    rows: Mapping[str, int]
    rows_out: int
    state_rows: int
    state_bytes: int

    @property
    def rows_in(self) -> int:
        """Rows of all streams."""
        return sum(self.rows.values())


@dataclass(frozen=True, slots=True)
class FirstForecast:
    """Figures that were predicted before the start.

    `batch_share` is the time of a batch as a share of its interval. `fixed_s` is the part of that time without rows.
    Batches of different sizes are compared by `row_s` and `result_s`, the seconds per row in and out. `provenance` says
    where the rate of each stream comes from.
    """

    rows_per_s: Mapping[str, float] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    rows_out_per_s: float = 0.0
    state_rows: float = 0.0
    state_bytes: float = 0.0
    batch_share: float = 0.0
    sustained_rows_per_s: float | None = None
    fixed_s: float = 0.0
    row_s: float = 1e-6
    result_s: float = 1e-6
    is_known: bool = True
    cores: int = 1
    correction: SparkCorrection = NO_CORRECTION

    @classmethod
    def of(cls, about: Explanation) -> FirstForecast:
        """Return the figures of an explanation that a run can be compared with."""
        cost, streams = about.chosen.cost, [about.config.inputs[i] for i in about.config.stream_inputs]
        estimates = {each.name: about.workload.inputs[each.number].rows_per_s for each in streams}
        rows_per_s = sum(each.value for each in estimates.values())
        batch, spark = about.micro_batch, about.profile.spark
        if batch is not None:
            share, fixed_s = batch.micro_batch_s / batch.trigger_s, batch.fixed_s
            row_s, result_s = batch.seconds_per_row, spark.out_s / max(1, batch.cores)
        else:
            share, fixed_s = cost.cpu_per_s, 0.0
            row_s, result_s = (cost.cpu_per_s / rows_per_s if rows_per_s else 0.0), about.profile.row_out_s
        return cls(
            rows_per_s={name: each.value for name, each in estimates.items()},
            provenance={name: str(each.provenance) for name, each in estimates.items()},
            rows_out_per_s=cost.rows_out_per_s,
            state_rows=cost.state_rows,
            state_bytes=cost.state_bytes,
            batch_share=share,
            sustained_rows_per_s=about.sustained_rows_per_s,
            fixed_s=fixed_s,
            row_s=max(row_s, 1e-9),
            result_s=max(result_s, 1e-9),
            cores=1 if batch is None else batch.cores,
            correction=NO_CORRECTION if batch is None else batch.correction,
        )


#: Placeholder where no forecast could be made. Its costs per row only weigh rows against results.
NO_FORECAST = FirstForecast(is_known=False)


@dataclass(frozen=True, slots=True)
class NextBatch:
    """Forecast of a batch: its rows in and out, and its time with the upper end of its range."""

    rows_in: float
    rows_out: float
    seconds: float
    high_s: float


@dataclass(frozen=True)
class LiveForecast:
    """Immutable forecast of a running query: `after` each batch returns a new one.

    The first batch of a run is left out once another one follows: its time contains the start of processes.

    >>> live = LiveForecast()
    >>> for number in range(3):
    ...     live = live.after(LiveBatch(number, 4.0, 10.0, {"a": 1000}, 50, 1000, 8000))
    >>> live.verdict, live.report().reason
    (<Verdict.KEEPS_UP: 'keeps up'>, 'the next batch takes 4 s of 10 s, at most 4.52 s')
    """

    first: FirstForecast = NO_FORECAST
    batches: tuple[LiveBatch, ...] = ()
    verdict: Verdict = Verdict.UNKNOWN
    seen: int = 0

    def after(self, batch: LiveBatch) -> LiveForecast:
        """Return the forecast after a batch. A batch without rows, or that covers no time, changes nothing."""
        if not batch.rows_in or not batch.interval_s > 0:
            return self
        known = () if self.seen == 1 else self.batches
        following = replace(self, batches=(*known, batch)[-RECENT_BATCHES:], seen=self.seen + 1)
        return replace(following, verdict=following._judge())

    def predict_next(self, ahead: int = 1) -> NextBatch:
        """Predict the batch after the last one, or a later one."""
        last, fit = self.batches[-1], self._fit()
        overhead_s, factor = fit.line()
        growth, out_growth = _find_growth(self._rates), _find_growth(self._rates_out)
        rows_in, rows_out = last.rows_in * growth**ahead, last.rows_out * out_growth**ahead
        seconds = overhead_s + factor * self._weigh(rows_in, rows_out)
        # Where windows fill or matches grow with the square of the rate, times grow faster than the line.
        trend_s = last.took_s * _find_growth([each.took_s / each.interval_s for each in self.batches]) ** ahead
        is_growing = growth > 1
        high_s = max(seconds, trend_s if is_growing else 0.0) * (1 + UPPER_SCATTERS * fit.scatter())
        return NextBatch(rows_in, rows_out, seconds, max(seconds, high_s))

    @property
    def interval_s(self) -> float:
        """Interval in which the rows of the last batch arrived."""
        return self.batches[-1].interval_s

    @property
    def safe_rows_per_s(self) -> float:
        """Rate at which the upper end of the forecast just fits the interval, with the matches per row of now."""
        return self._find_rate(1 + UPPER_SCATTERS * self._fit().scatter())

    @property
    def sustained_rows_per_s(self) -> float:
        """Rate at which a batch takes exactly the interval."""
        return self._find_rate(1.0)

    def report(self) -> LiveReport:
        """Return the verdict, and what was predicted and measured."""
        if not self.batches:
            return LiveReport(-1, Verdict.UNKNOWN, "no batch has finished")
        if self.verdict is Verdict.UNKNOWN:
            return LiveReport(
                self.batches[-1].number, self.verdict, "the first batch contains the start of processes: no verdict yet"
            )
        return LiveReport(
            self.batches[-1].number,
            self.verdict,
            self._reason(),
            tuple(self._compare()),
            tuple(sorted(self._find_failed_assumptions(), key=lambda each: -abs(math.log(each.factor)))),
            self.safe_rows_per_s,
        )

    def _judge(self) -> Verdict:
        if self.seen == 1:
            return Verdict.UNKNOWN
        last, following = self.batches[-1], self.predict_next()
        if last.took_s > last.interval_s and following.seconds > self.interval_s:
            return Verdict.DOES_NOT
        limit_s = self.interval_s * (1.0 if self.verdict is not Verdict.MAY_NOT else RECOVERED_SHARE)
        highest_s = max(following.high_s, self.predict_next(BATCHES_AHEAD).high_s)
        return Verdict.KEEPS_UP if highest_s <= limit_s else Verdict.MAY_NOT

    def _reason(self) -> str:
        following, interval = self.predict_next(), format_duration(self.interval_s)
        next_s = f"the next batch takes {format_duration(following.seconds)} of {interval}"
        if self.verdict is Verdict.KEEPS_UP:
            return f"{next_s}, at most {format_duration(following.high_s)}"
        growth = _find_growth(self._rates)
        grows = f"; the rate grows by {format_percent(growth - 1)} per batch" if growth > 1 else ""
        safe = f"; {format_rate(self.safe_rows_per_s)} is safe" if self.safe_rows_per_s > 0 else "; no rate is safe"
        return f"{next_s}, perhaps {format_duration(following.high_s)}{grows}{safe}"

    def _compare(self) -> Iterator[ComparedFigure]:
        last, first, following = self.batches[-1], self.first, self.predict_next()
        growth = following.rows_in / last.rows_in
        for name, rows in last.rows.items():
            rate = rows / last.interval_s
            yield ComparedFigure(f"rate of {name}", "rows/s", first.rows_per_s.get(name), rate, rate * growth)
        known = first.is_known
        out_s = last.rows_out / last.interval_s
        yield ComparedFigure(
            "rows out", "rows/s", first.rows_out_per_s if known else None, out_s, following.rows_out / self.interval_s
        )
        first_s = first.batch_share * self.interval_s if known else None
        yield ComparedFigure("time of a batch", "s", first_s, last.took_s, following.seconds, following.high_s)
        yield ComparedFigure("rows in state", "rows", first.state_rows if known else None, last.state_rows, None)
        yield ComparedFigure("state", "bytes", first.state_bytes if known else None, last.state_bytes, None)
        sustained = first.sustained_rows_per_s
        rate = last.rows_in / last.interval_s
        yield ComparedFigure("sustained rate", "rows/s", sustained, rate, self.sustained_rows_per_s)

    def _find_failed_assumptions(self) -> Iterator[FailedAssumption]:
        """Yield what the first forecast assumed and the batches contradict."""
        first = self.first
        if not first.is_known:
            return
        span_s = sum(each.interval_s for each in self.batches)
        for name, assumed in first.rows_per_s.items():
            newest = self.batches[-GROWTH_PAIRS:]
            rate = sum(each.rows.get(name, 0) for each in newest) / sum(each.interval_s for each in newest)
            source = first.provenance.get(name, "")
            yield from _contradict(f"rate of {name}", assumed, rate, format_rate, f" ({source})" if source else "")
        rows_in, rows_out = sum(each.rows_in for each in self.batches), sum(each.rows_out for each in self.batches)
        assumed_rate = sum(first.rows_per_s.values())
        if assumed_rate and rows_out + first.rows_out_per_s * span_s >= 1:
            yield from _contradict(
                "rows out per row", first.rows_out_per_s / assumed_rate, rows_out / rows_in, lambda each: f"{each:.3g}"
            )
        last = self.batches[-1]
        if assumed_rate and first.state_rows:
            rate = rows_in / span_s
            expected = first.state_rows / assumed_rate * rate
            if last.state_rows > expected:  # windows that are not full yet hold fewer rows
                yield from _contradict("rows in state", expected, last.state_rows, format_count)
        if first.batch_share:
            took_s = sum(each.took_s for each in self.batches)
            matches = max(0.0, rows_out - first.rows_out_per_s / assumed_rate * rows_in) if assumed_rate else 0.0
            expected_s = len(self.batches) * first.fixed_s + rows_in * first.row_s + matches * first.result_s
            yield from _contradict(
                "time per row and batch", expected_s / len(self.batches), took_s / len(self.batches), format_duration
            )

    @property
    def mean_batch(self) -> tuple[float, float, float] | None:
        """Mean seconds of the last batches: predicted for the driver, predicted for the tasks, and measured.

        The predictions are for the rows that came, by the costs of the profile alone. None without enough batches.
        """
        first, count = self.first, len(self.batches)
        if count < MIN_LEARNED_BATCHES or not first.is_known:
            return None
        tasks_s = sum(self._predict_tasks_s(each) for each in self.batches) / count
        measured_s = sum(each.took_s for each in self.batches) / count
        return first.fixed_s / first.correction.driver, tasks_s / first.correction.tasks, measured_s

    def _predict_tasks_s(self, batch: LiveBatch) -> float:
        """Predict the tasks of a batch by the first forecast. Its seconds per row include the matches it expected."""
        first, rate = self.first, sum(self.first.rows_per_s.values())
        expected_out = first.rows_out_per_s / rate * batch.rows_in if rate else 0.0
        more_out = first.correction.tasks * first.result_s * (batch.rows_out - expected_out)
        return max(0.0, batch.rows_in * first.row_s + more_out)

    @property
    def _rates(self) -> list[float]:
        return [each.rows_in / each.interval_s for each in self.batches]

    @property
    def _rates_out(self) -> list[float]:
        return [each.rows_out / each.interval_s for each in self.batches]

    def _weigh(self, rows_in: float, rows_out: float) -> float:
        """Return the seconds of a batch by the costs per row and per result of the first forecast."""
        return rows_in * self.first.row_s + rows_out * self.first.result_s

    def _fit(self) -> MachineFit:
        fit = MachineFit(overhead_s=self.first.fixed_s)
        for number, each in enumerate(self.batches):
            fit = fit.with_point(self._weigh(each.rows_in, each.rows_out), each.took_s, steady=number > 0)
        return fit

    def _find_rate(self, margin: float) -> float:
        """Return the rate at which a batch takes the interval divided by the margin."""
        last, (overhead_s, factor) = self.batches[-1], self._fit().line()
        spare_s = self.interval_s / margin - overhead_s
        return max(0.0, spare_s / (factor * self._weigh(last.rows_in, last.rows_out))) * last.rows_in / last.interval_s


def _find_growth(values: Sequence[float]) -> float:
    """Return the factor by which a figure grows from batch to batch; 1 if it does not grow every time.

    >>> _find_growth([1.0, 2.0, 4.0]), _find_growth([1.0, 2.0, 1.9]), _find_growth([5.0])
    (2.0, 1.0, 1.0)
    """
    recent = [each for each in values[-GROWTH_PAIRS - 1 :] if each > 0]
    ratios = [after / before for before, after in itertools.pairwise(recent)]
    if len(ratios) < min(2, GROWTH_PAIRS) or min(ratios[-2:]) < MIN_GROWTH:
        return 1.0
    return min(MAX_GROWTH, math.prod(ratios[-2:]) ** (1 / 2))


def _contradict(
    name: str, assumed: float, measured: float, show: Callable[[float], str], source: str = ""
) -> Iterator[FailedAssumption]:
    """Yield the assumption if it is off by more than `FAILED_FACTOR`."""
    factor = measured / assumed if assumed > 0 else math.inf if measured > 0 else 1.0
    if factor > 0 and not 1 / FAILED_FACTOR <= factor <= FAILED_FACTOR:
        yield FailedAssumption(name, f"{show(assumed)}{source}", show(measured), min(factor, 1e9))
