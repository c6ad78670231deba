"""`watersmeet calibrate`: measures this machine, keeps the weights, and says what each of them means."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import typer
from rich.table import Table
from rich.text import Text

from watersmeet.calibration import calibrated, current, save
from watersmeet.cli.spark import quiet_spark
from watersmeet.cli.terminal import escape_control_characters, make_console
from watersmeet.planner.models.profile import SCALARS, STRUCTURES, Profile, SparkCosts

_STRUCTURE_MEANINGS = {
    "compare_s": "a row compared in a lookup",
    "update_s": "a row touched by an insertion or an expiration",
    "lookup_s": "a lookup, whatever it finds",
}
_OTHER_MEANINGS = {
    ("runs", "compare_s"): "a match found in a lookup",
    ("runs", "update_s"): "a row put into a run; runs leave as a whole",
    ("btree", "update_s"): "a row passed on the way down by an insertion or an expiration",
    ("ttree", "update_s"): "a row passed on the way down by an insertion or an expiration",
}
_SPARK_MEANINGS = {
    "pack_s": "a row read and packed on Spark",
    "shuffle_s": "a row handed from one stage to the next",
    "state_s": "a row kept in the state store",
    "out_s": "a row handed out by Spark",
    "batch_s": "a micro-batch, whatever it holds",
}
_SCALAR_MEANINGS = {
    "row_in_s": "a row taken in",
    "match_s": "a match handed on",
    "row_out_s": "a row put out",
    "select_s": "a row a predicate is asked of",
    "group_s": "a group looked at in the fourth paper's aggregation set; not measured, ours are the weights below",
    "batch_s": "a batch, whatever it holds",
    "check_s": "a candidate a predicate is evaluated on",
    "probe_batch_s": "a pane that a batch looks into",
    "loop_match_s": "a row handed on by a nested loop",
    "layout_s": "a row laid out for nested loops",
    "loops_batch_s": "a batch of nested loops",
    "scan_s": "a row whose times and conditions a nested loop looks at",
    "node_batch_s": "a batch at a node of a tree of joins",
    "count_s": "a row counted for a ROWS window",
}
_EARLY_MEANINGS = {
    "row_s": "a row taken in by an aggregation",
    "early_row_s": "a row counted in its group before the join",
    "change_s": "a change that has to be joined",
    "probe_s": "a window or a set of groups that a change is looked up in",
    "result_s": "a joined result added to its group",
}


def calibrate_machine(*, quick: bool = False, spark: bool = False, as_json: bool = False) -> None:
    """Measures the weights of the cost models on this machine and keeps them for every later plan."""
    say = _progress_printer()
    profile = calibrated(say, quick)
    profile = replace(profile, spark=_calibrate_spark(say, quick=quick) if spark else current().spark)
    path = save(profile)
    if as_json:
        typer.echo(json.dumps({"saved": str(path), "profile": json.loads(profile.to_json())}, indent=2))
        return
    screen = make_console()
    screen.print(render_weights(profile))
    screen.print(
        f"{escape_control_characters(profile.source)}; saved in {escape_control_characters(str(path))}",
        markup=False,
        soft_wrap=True,
    )


def _calibrate_spark(say: Callable[[str], None], *, quick: bool) -> SparkCosts:
    with quiet_spark({}):
        from watersmeet.runtime.spark.calibration import (
            calibrated_on_spark,
        )  # costs a second, and the rest needs no Spark

        return calibrated_on_spark(say, quick=quick)


def render_weights(profile: Profile) -> Table:
    """One line for each weight, with what it is the time of."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    shown.add_column("weight", no_wrap=True)
    shown.add_column("time", justify="right", no_wrap=True)
    shown.add_column("for")
    for name, seconds, meaning in _list_weights(profile):
        shown.add_row(Text(name), Text(format_duration(seconds)), Text(meaning))
    return shown


def format_duration(seconds: float) -> str:
    """A short time with three digits.

    >>> duration(3.5e-10), duration(0.000245), duration(0.0)
    ('0.350 ns', '245 µs', '0')
    """
    if not seconds:
        return "0"
    size, unit = next((each for each in ((1e-3, "ms"), (1e-6, "µs")) if seconds >= each[0]), (1e-9, "ns"))
    amount = seconds / size
    return f"{amount:.{0 if amount >= 100 else 1 if amount >= 10 else 2 if amount >= 1 else 3}f} {unit}"


def _list_weights(profile: Profile) -> Iterator[tuple[str, float, str]]:
    for kind in STRUCTURES:
        for name, meaning in _STRUCTURE_MEANINGS.items():
            yield f"{kind}.{name}", getattr(profile.structure(kind), name), _OTHER_MEANINGS.get((kind, name), meaning)
    for name in SCALARS:
        yield name, getattr(profile, name), _SCALAR_MEANINGS[name]
    for name, meaning in _EARLY_MEANINGS.items():
        yield f"early.{name}", getattr(profile.early, name), meaning
    for name, meaning in _SPARK_MEANINGS.items():
        yield (
            f"spark.{name}",
            getattr(profile.spark, name),
            meaning + ("; assumed, not measured" if profile.spark.assumed else ""),
        )


def _progress_printer() -> Callable[[str], None]:
    """Progress goes where it cannot mix with what programs read."""
    screen = make_console(stderr=True)
    return lambda words: screen.print(f"measuring {words}", markup=False, style="dim")
