"""`watersmeet repair`: list the problems of a checkpoint and fix them if no row is lost or duplicated."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import typer

from watersmeet.checkpoint.findings import Finding
from watersmeet.checkpoint.repair import find_problems
from watersmeet.checkpoint.store import lock_checkpoint
from watersmeet.cli.terminal import make_console
from watersmeet.errors import InputError, escape_controls


def repair_checkpoint(path: Path, out: Path | None = None, *, fix: bool = False, as_json: bool = False) -> bool:
    """Print the problems, fix them if asked to, and return whether none is left."""
    # A fix moves files of the checkpoint, so no run may use it meanwhile. A checkpoint that was never used has no lock
    # and needs none.
    with lock_checkpoint(path) if fix and (path / "lock").exists() else nullcontext():
        found = find_problems(path, out)
        if fix:
            _fix_findings(found)
    left = [each for each in found if not (fix and each.is_fixable)]
    if as_json:
        typer.echo(
            json.dumps(
                {"checkpoint": str(path), "findings": [each.to_dict() for each in found], "left": len(left)}, indent=2
            )
        )
        return not left
    _print_findings(found, fixed=fix)
    if not found:
        make_console().print(f"{escape_controls(str(path))} has no problems", markup=False, soft_wrap=True)
    return not left


def _fix_findings(found: list[Finding]) -> None:
    for each in found:
        try:
            each.fix()
        except OSError as error:
            raise InputError(f'"{each.path}" cannot be moved aside: {error.strerror or error}') from error


def _print_findings(found: list[Finding], *, fixed: bool) -> None:
    screen = make_console()
    for each in found:
        status = ("fixed" if fixed else "--fix moves it aside") if each.is_fixable else "cannot be fixed"
        line = f"{each.path} {each.problem}: {each.consequence} ({status})"
        screen.print(escape_controls(line), markup=False, soft_wrap=True)
