"""`watersmeet calibrate`: measures this machine, keeps the weights, and says what each of them means."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import typer
from rich.table import Table
from rich.text import Text

from watersmeet.cli.show import console, printable
from watersmeet.cost.profile import SCALARS, STRUCTURES, Profile
from watersmeet.optimizer.calibration import calibrated, save

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
_SCALAR_MEANINGS = {
    "row_in_s": "a row taken in",
    "match_s": "a match handed on",
    "row_out_s": "a row put out",
    "select_s": "a row a predicate is asked of",
    "group_s": "a group looked at in an aggregation set; not measured",
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


def calibrate(*, quick: bool = False, as_json: bool = False) -> None:
    """Measures the weights of the cost models on this machine and keeps them for every later plan."""
    profile = calibrated(_on_stderr(), quick)
    path = save(profile)
    if as_json:
        typer.echo(json.dumps({"saved": str(path), "profile": json.loads(profile.to_json())}, indent=2))
        return
    screen = console()
    screen.print(weights_as_table(profile))
    screen.print(f"{printable(profile.source)}; saved in {printable(str(path))}", markup=False, soft_wrap=True)


def weights_as_table(profile: Profile) -> Table:
    """One line for each weight, with what it is the time of."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    shown.add_column("weight", no_wrap=True)
    shown.add_column("time", justify="right", no_wrap=True)
    shown.add_column("for")
    for name, seconds, meaning in _weights(profile):
        shown.add_row(Text(name), Text(duration(seconds)), Text(meaning))
    return shown


def duration(seconds: float) -> str:
    """A short time with three digits.

    >>> duration(3.5e-10), duration(0.000245), duration(0.0)
    ('0.350 ns', '245 µs', '0')
    """
    if not seconds:
        return "0"
    size, unit = next((each for each in ((1e-3, "ms"), (1e-6, "µs")) if seconds >= each[0]), (1e-9, "ns"))
    amount = seconds / size
    return f"{amount:.{0 if amount >= 100 else 1 if amount >= 10 else 2 if amount >= 1 else 3}f} {unit}"


def _weights(profile: Profile) -> Iterator[tuple[str, float, str]]:
    for kind in STRUCTURES:
        for name, meaning in _STRUCTURE_MEANINGS.items():
            yield f"{kind}.{name}", getattr(profile.structure(kind), name), _OTHER_MEANINGS.get((kind, name), meaning)
    for name in SCALARS:
        yield name, getattr(profile, name), _SCALAR_MEANINGS[name]


def _on_stderr() -> Callable[[str], None]:
    """Progress goes where it cannot mix with what programs read."""
    screen = console(stderr=True)
    return lambda words: screen.print(f"measuring {words}", markup=False, style="dim")
