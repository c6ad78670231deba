"""`watersmeet repair`: what is wrong with a checkpoint, and what was done about it."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from watersmeet.cli.show import console, printable
from watersmeet.errors import InputError
from watersmeet.runtime.job.checkpoint import locked
from watersmeet.runtime.job.repair import Finding, findings


def repair(path: Path, out: Path | None = None, *, mend: bool = False, as_json: bool = False) -> bool:
    """Says, and with `mend` mends, what is wrong; True when nothing wrong is left."""
    found = findings(path, out)
    if mend and (path / "lock").exists():
        with locked(path):
            _mend(found)
    elif mend:
        _mend(found)
    left = [each for each in found if not (mend and each.can_be_mended)]
    if as_json:
        typer.echo(json.dumps({"checkpoint": str(path), "findings": [each.to_dict() for each in found], "left": len(left)}, indent=2))
        return not left
    _say(found, mended=mend)
    if not found:
        console().print(f"{printable(str(path))} is in order", markup=False, soft_wrap=True)
    return not left


def _mend(found: list[Finding]) -> None:
    for each in found:
        try:
            each.mend()
        except OSError as error:
            raise InputError(f'"{each.place}" cannot be moved aside: {error.strerror or error}') from error


def _say(found: list[Finding], *, mended: bool) -> None:
    screen = console()
    for each in found:
        done = "mended" if mended and each.can_be_mended else "--mend moves it aside" if each.can_be_mended else "it cannot be mended"
        screen.print(f"{printable(str(each.place))}: {printable(each.wrong)}; {each.meaning}. {done}.", markup=False, soft_wrap=True)
