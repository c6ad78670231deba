"""Results of the demo: a check by a plain loop, and tables of plans, costs and sample rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table

from watersmeet.cli.demo.engines import BatchSample, DemoContext, SteadyState, predict_join_cpu_per_s
from watersmeet.cli.demo.replay import AIRCRAFT_WINDOW_US, HOUR_US, Tables, times_us
from watersmeet.planner.explain import Explanation, describe_profile
from watersmeet.planner.plan_cost import CostedPlan
from watersmeet.units import format_bytes, format_cores, format_duration, format_rate

Row = tuple[Any, ...]
#: Instants of departure in microseconds, by aircraft.
DeparturesByAircraft = dict[str, list[int]]
SAMPLE_ROWS = 5
_OUTPUT_TIMES = ("from_ewr", "from_jfk", "from_lga")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Comparison of the engine's rows with those of the plain loop."""

    combinations: int
    rows: int
    lost: int
    invented: int

    @property
    def holds(self) -> bool:
        """Return whether the rows agree. An empty result would prove nothing."""
        return self.rows > 0 and self.lost == 0 and self.invented == 0


def check_aircraft(rows: pa.Table, departures: Tables) -> CheckResult:
    """Compare the engine's rows with every combination of three departures of one aircraft, one from each airport."""
    by_aircraft = {airport: _group_by_aircraft(table) for airport, table in departures.items()}
    expected, actual = Counter(_join_by_loops(**by_aircraft)), count_rows(rows)
    combinations = sum(
        len(first) * len(by_aircraft["jfk"].get(aircraft, ())) * len(by_aircraft["lga"].get(aircraft, ()))
        for aircraft, first in by_aircraft["ewr"].items()
    )
    return CheckResult(combinations, actual.total(), (expected - actual).total(), (actual - expected).total())


def _group_by_aircraft(table: pa.Table) -> DeparturesByAircraft:
    groups: DeparturesByAircraft = {}
    for aircraft, departed_us in zip(
        table.column("aircraft").to_pylist(), times_us(table, "departed").tolist(), strict=True
    ):
        groups.setdefault(str(aircraft), []).append(departed_us)
    return groups


def _join_by_loops(ewr: DeparturesByAircraft, jfk: DeparturesByAircraft, lga: DeparturesByAircraft) -> Iterator[Row]:
    """Yield the rows of the join without the engine. A pair that is too far apart has no third departure."""
    for aircraft in ewr:
        for e in ewr[aircraft]:
            for j in jfk.get(aircraft, ()):
                if abs(e - j) > AIRCRAFT_WINDOW_US:
                    continue
                for l in lga.get(aircraft, ()):  # noqa: E741 - the names are those of the query
                    if abs(e - l) <= AIRCRAFT_WINDOW_US and abs(j - l) <= AIRCRAFT_WINDOW_US:
                        yield aircraft, e, j, l


def have_same_rows(first: pa.Table, second: pa.Table) -> bool:
    return count_rows(first) == count_rows(second)


def count_rows(table: pa.Table) -> Counter[Row]:
    """Return the rows of a table with their multiplicities; instants as microseconds."""
    return Counter(zip(*(_to_values(column) for column in table.columns), strict=True))


def _to_values(column: pa.ChunkedArray[Any]) -> list[Any]:
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def render_plans(about: Explanation) -> Table:
    """Render the chosen plan and the best plan of every other algorithm, with the CPU of the join itself."""
    shown = _make_table("plan", "CPU of the join", "")
    chosen = _sum_join_cost(about.chosen)
    for each in (about.chosen, *_list_best_by_algorithm(about)):
        cpu = _sum_join_cost(each)
        times = "chosen" if each is about.chosen else f"{cpu / chosen:.2f} times as much"
        shown.add_row(f"  {each.plan.algorithm}", format_cores(cpu), times)
    return shown


def _list_best_by_algorithm(about: Explanation) -> Iterator[CostedPlan]:
    seen = {about.plan.algorithm}
    for each in about.others:
        if each.plan.algorithm not in seen:
            seen.add(each.plan.algorithm)
            yield each


def _sum_join_cost(each: CostedPlan) -> float:
    return sum(part.cpu_per_s for part in each.cost.operators if not part.name.startswith("spark: "))


def render_measurement(demo: DemoContext, about: Explanation, measured: SteadyState | None) -> Table:
    cost, join = about.chosen.cost, predict_join_cpu_per_s(about)
    predicted = SteadyState(cost.cpu_per_s, join, cost.rows_out_per_s, cost.state_bytes)
    unknown = ["too few batches"] * len(_list_figures(demo, predicted))
    shown = _make_table("", "predicted", "measured")
    for (name, text), found in zip(
        _list_figures(demo, predicted).items(),
        unknown if measured is None else _list_figures(demo, measured).values(),
        strict=True,
    ):
        shown.add_row(f"  {name}", text, found)
    return shown


def _list_figures(demo: DemoContext, steady: SteadyState) -> dict[str, str]:
    spark = {
        "CPU of Spark itself": format_cores(steady.cpu_per_s - steady.join_cpu_per_s),
        "CPU in all": format_cores(steady.cpu_per_s),
    }
    return {
        "CPU of the join": format_cores(steady.join_cpu_per_s),
        **(spark if demo.on_spark else {}),
        "rows out": format_rate(steady.rows_out_per_s),
        "state": format_bytes(steady.state_bytes),
    }


def describe_costs(demo: DemoContext, samples: list[BatchSample]) -> str:
    """Say which costs the prediction is based on, and whether the run kept up with the replay."""
    durations_s = [each.figures.took_s for each in samples[1:]] or [0.0]
    average_s = sum(durations_s) / len(durations_s)
    kept_up = "The run kept up" if average_s <= demo.replay.batch_s else "The run fell behind"
    assumed = (
        " Spark's own costs are assumed: watersmeet calibrate --spark measures them. Java needs more CPU in its first"
        " minute, while it compiles Spark's code."
        if demo.on_spark and demo.explanation is not None and demo.explanation.profile.spark.assumed
        else ""
    )
    profile = "" if demo.explanation is None else f" {describe_profile(demo.explanation.profile).capitalize()}."
    average, longest = format_duration(average_s), format_duration(max(durations_s))
    pace = f"{kept_up}: a batch took {average} on average and {longest} at most." if demo.paced else ""
    return f"{pace}{profile}{assumed}".strip()


def _make_table(*titles: str) -> Table:
    shown = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for place, title in enumerate(titles):
        shown.add_column(f"  {title}" if place == 0 else title, justify="left" if place == 0 else "right")
    return shown


def select_quickest(rows: pa.Table) -> pa.Table:
    """Return the result of each aircraft with the least time between its departures, the quickest aircraft first."""
    times = np.stack([times_us(rows, name) for name in _OUTPUT_TIMES])
    hours = (times.max(axis=0) - times.min(axis=0)) / HOUR_US
    ordered = rows.append_column("hours", pa.array(hours.round(1))).sort_by(
        [(name, "ascending") for name in ("hours", "aircraft", *_OUTPUT_TIMES)]
    )
    _, first = np.unique(ordered.column("aircraft").to_numpy(), return_index=True)
    quickest = ordered.take(np.sort(first)[:SAMPLE_ROWS])
    for name in _OUTPUT_TIMES:
        minutes = pc.strftime(quickest.column(name), format="%Y-%m-%d %H:%M")
        quickest = quickest.set_column(quickest.schema.get_field_index(name), name, minutes)
    return quickest


def round_averages(rows: pa.Table) -> pa.Table:
    for place, column in enumerate(rows.schema):
        if pa.types.is_floating(column.type):
            rows = rows.set_column(place, column.name, pc.round(rows.column(place), 1))
    return rows
