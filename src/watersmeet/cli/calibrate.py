"""`watersmeet calibrate`: measure the operation costs of this machine, save them, and print what each one means."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import typer
from rich.table import Table
from rich.text import Text

from watersmeet.calibration import current_profile, measure_profile, save_profile
from watersmeet.cli.spark import quiet_spark
from watersmeet.cli.terminal import make_console
from watersmeet.errors import escape_controls
from watersmeet.extras import SPARK, SPARK_CALIBRATION, require_extra
from watersmeet.planner.models.profile import SCALARS, STRUCTURES, Profile, SparkCosts
from watersmeet.units import format_operation_time

_STRUCTURE_MEANINGS = {
    "compare_s": "a row compared in a lookup",
    "update_s": "a row touched by an insertion or an expiration",
    "lookup_s": "a lookup, regardless of its matches",
}
_OTHER_MEANINGS = {
    ("runs", "compare_s"): "a match found in a lookup",
    ("runs", "update_s"): "a row inserted into a run; a run expires as a whole",
    ("btree", "update_s"): "a row passed on the way down by an insertion or an expiration",
    ("ttree", "update_s"): "a row passed on the way down by an insertion or an expiration",
}
_SPARK_MEANINGS = {
    "pack_s": "a row read and packed on Spark",
    "shuffle_s": "a row shuffled to the next stage",
    "state_s": "a row written to the state store",
    "out_s": "a row emitted by Spark",
    "batch_s": "a micro-batch, regardless of its size",
    "driver_s": "the wall time of a micro-batch without rows",
}
_SCALAR_MEANINGS = {
    "row_in_s": "a row ingested",
    "match_s": "a match passed to the next probe",
    "row_out_s": "a row emitted",
    "select_s": "a row tested by a predicate of its own stream",
    "group_s": "a group visited in the aggregation set of Tran and Lee; not measured, our own costs are below",
    "batch_s": "a batch, regardless of its size",
    "check_s": "a candidate match that a predicate is evaluated on",
    "probe_batch_s": "a pane probed by a batch",
    "loop_match_s": "a match of a nested loop, passed on",
    "layout_s": "a row laid out for nested loops",
    "loops_batch_s": "a batch of nested loops",
    "scan_s": "a row whose times and conditions a nested loop compares",
    "node_batch_s": "a batch at a node of a tree of joins",
    "count_s": "a row counted for a ROWS window",
}
_EARLY_MEANINGS = {
    "row_s": "a row ingested by an aggregation",
    "early_row_s": "a row counted in its group before the join",
    "change_s": "a change that has to be joined",
    "probe_s": "a lookup of a change in a window or in a set of groups",
    "result_s": "a joined result added to its group",
}
_EXPRESSION_MEANINGS = {
    "number_s": "a row on which numbers are compared or computed",
    "text_s": "a row on which text is compared",
    "member_s": "a row tested by IN",
    "pattern_s": "a row tested by LIKE or CONTAINS",
    "text_call_s": "a row on which a function returns text",
    "text_cast_s": "a row whose text is cast, or a value cast to text",
    "time_call_s": "a row of which a part of an instant is taken",
    "branch_s": "a row on which CASE chooses",
}


def run_calibration(*, quick: bool = False, spark: bool = False, as_json: bool = False) -> None:
    """Measure the operation costs of this machine and save them for every later plan."""
    if spark:  # a missing module is reported before the minute of measurements
        require_extra(SPARK)
        require_extra(SPARK_CALIBRATION)
    report = _progress_printer()
    profile = measure_profile(report, quick)
    profile = replace(profile, spark=_calibrate_spark(report, quick=quick) if spark else current_profile().spark)
    path = save_profile(profile)
    if as_json:
        typer.echo(json.dumps({"saved": str(path), "profile": json.loads(profile.to_json())}, indent=2))
        return
    screen = make_console()
    screen.print(render_weights(profile))
    screen.print(
        f"{escape_controls(profile.source)}; saved in {escape_controls(str(path))}",
        markup=False,
        soft_wrap=True,
    )


def _calibrate_spark(report: Callable[[str], None], *, quick: bool) -> SparkCosts:
    with quiet_spark({}):
        from watersmeet.runtime.spark.calibration import calibrate_spark

        return calibrate_spark(report, quick=quick)


def render_weights(profile: Profile) -> Table:
    """Render one line per operation: its name, its time and its meaning."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("cost", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("of")
    for name, seconds, meaning in _list_weights(profile):
        table.add_row(Text(name), Text(format_operation_time(seconds)), Text(meaning))
    return table


def _list_weights(profile: Profile) -> Iterator[tuple[str, float, str]]:
    for kind in STRUCTURES:
        for name, meaning in _STRUCTURE_MEANINGS.items():
            yield f"{kind}.{name}", getattr(profile.structure(kind), name), _OTHER_MEANINGS.get((kind, name), meaning)
    for name in SCALARS:
        yield name, getattr(profile, name), _SCALAR_MEANINGS[name]
    for name, meaning in _EARLY_MEANINGS.items():
        yield f"early.{name}", getattr(profile.early, name), meaning
    for name, meaning in _EXPRESSION_MEANINGS.items():
        yield f"expressions.{name}", getattr(profile.expressions, name), meaning
    for name, meaning in _SPARK_MEANINGS.items():
        yield (
            f"spark.{name}",
            getattr(profile.spark, name),
            meaning + ("; assumed, not measured" if profile.spark.assumed else ""),
        )


def _progress_printer() -> Callable[[str], None]:
    """Return a function that prints progress on stderr, where it cannot mix with JSON on stdout."""
    screen = make_console(stderr=True)
    return lambda step: screen.print(f"measuring {step}", markup=False, style="dim")
