"""The verdict on a running query: it turns before a growing rate fills the interval, and stays at a steady load."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from watersmeet.planner.live_forecast import FirstForecast, LiveBatch, LiveForecast
from watersmeet.planner.live_report import LiveReport, Verdict

FIRST = FirstForecast(
    rows_per_s={"a": 500.0, "b": 500.0},
    provenance={"a": "declared", "b": "measured"},
    rows_out_per_s=100.0,
    state_rows=10_000.0,
    state_bytes=160_000.0,
    batch_share=0.1,
    fixed_s=0.65,
    row_s=2e-5,
    result_s=2e-6,
)


@dataclass
class SimulatedJob:
    """A join on a machine: a batch costs an overhead, seconds per row and seconds per match.

    Keys and windows are fixed, so matches grow with the square of the rate.
    """

    trigger_s: float
    row_s: float = 3e-5
    match_s: float = 2e-6
    overhead_s: float = 0.7
    noise: float = 0.03
    rng: Random = field(default_factory=lambda: Random(5))

    def run_batch(self, number: int, rows_per_s: float) -> LiveBatch:
        noise = self.rng.uniform(1 - self.noise, 1 + self.noise)
        rows = int(rows_per_s * self.trigger_s)
        rows_out = int(rows * rows_per_s / 10_000)
        took_s = (self.overhead_s + self.row_s * rows + self.match_s * rows_out) * noise
        if number == 0:
            took_s += 8.0  # processes start
        state_rows = int(20 * rows_per_s)
        return LiveBatch(
            number,
            took_s,
            self.trigger_s,
            {"a": rows // 2, "b": rows - rows // 2},
            rows_out,
            state_rows,
            16 * state_rows,
        )


@pytest.mark.parametrize("trigger_s", [2.0, 10.0, 30.0, 60.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_verdict_on_a_rate_that_doubles_every_minute_turns_before_a_batch_exceeds_its_interval(
    trigger_s: float, seed: int
) -> None:
    job, live, verdicts, took = SimulatedJob(trigger_s, rng=Random(seed)), LiveForecast(FIRST), [], []
    for number in range(400):
        batch = job.run_batch(number, 1_000 * 2 ** (number * trigger_s / 60))
        live = live.after(batch)
        verdicts.append(live.verdict)
        took.append(batch.took_s)
        if number and batch.took_s > trigger_s:
            break
    exceeded = len(took) - 1
    turned = next(number for number, each in enumerate(verdicts) if number and each is not Verdict.KEEPS_UP)
    assert turned < exceeded
    assert Verdict.KEEPS_UP in verdicts[1:turned], "it kept up at first"
    # The warning comes when it is needed, not at the first growth.
    assert took[turned] * 16 > trigger_s


@pytest.mark.parametrize("noise", [0.0, 0.03, 0.1])
def test_a_steady_load_never_turns_the_verdict(noise: float) -> None:
    job, live = SimulatedJob(10.0, noise=noise), LiveForecast(FIRST)
    verdicts = set()
    for number in range(200):
        live = live.after(job.run_batch(number, 15_000))
        verdicts.add(live.verdict)
    assert verdicts == {Verdict.UNKNOWN, Verdict.KEEPS_UP}


def test_a_load_at_its_limit_does_not_make_the_verdict_alternate() -> None:
    job, live, changes = SimulatedJob(10.0, noise=0.05), LiveForecast(FIRST), 0
    for number in range(200):
        before, live = live, live.after(job.run_batch(number, 25_500))
        changes += live.verdict is not before.verdict
    assert changes <= 6


def test_a_query_that_is_too_slow_recovers_when_its_rate_falls() -> None:
    job, live, verdicts = SimulatedJob(10.0), LiveForecast(FIRST), []
    for number in range(40):
        live = live.after(job.run_batch(number, 60_000 if number < 15 else 5_000))
        verdicts.append(live.verdict)
    assert verdicts[14] is Verdict.DOES_NOT
    assert verdicts[-1] is Verdict.KEEPS_UP


def test_the_report_names_the_assumption_that_failed_first() -> None:
    live = LiveForecast(FIRST)
    for number in range(4):
        live = live.after(LiveBatch(number, 1.0, 10.0, {"a": 5_000, "b": 80_000}, 8_500, 15_000, 240_000))
    report = live.report()
    assert str(report.failed[0]) == "rate of b: 500 rows/s (measured), measured 8,000 rows/s (16.0 times as many)"
    assert all(each.name != "rate of a" for each in report.failed)
    figures = {each.name: each for each in report.comparisons}
    assert (figures["rate of b"].first, figures["rate of b"].measured) == (500.0, 8_000.0)
    assert figures["time of a batch"].current == pytest.approx(1.0, rel=0.05)
    assert LiveReport.from_dict(report.to_dict()) == report


def test_a_safe_rate_is_one_at_which_batches_fit() -> None:
    job, live = SimulatedJob(10.0, match_s=0.0), LiveForecast(FIRST)
    for number in range(15):
        live = live.after(job.run_batch(number, 31_000))
    safe = live.safe_rows_per_s
    assert live.verdict is Verdict.MAY_NOT
    assert "is safe" in live.report().reason
    assert 0.5 * 31_000 < safe < 31_000
    assert job.overhead_s + job.row_s * safe * 10 < 10
