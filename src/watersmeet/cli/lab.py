"""Commands `paper` and `bench` of the laboratory, which the package watersmeet-lab adds through an entry point."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated

import typer

from watersmeet.cli.exit import exit_on_error
from watersmeet.errors import InputError

ENTRY_POINTS = "watersmeet.commands"
LAB_COMMANDS = {
    "paper": "Reproduce a paper's tables and figures (needs watersmeet-lab).",
    "bench": "Measure this system against its peers (needs watersmeet-lab).",
}


def add_lab_commands(app: typer.Typer) -> None:
    """Add the commands of installed extensions, or commands that print how to install the laboratory."""
    found = entry_points(group=ENTRY_POINTS)
    for entry in found:
        entry.load()(app)
    if not found:
        for name, summary in LAB_COMMANDS.items():
            _add_missing_command(app, name, summary)


def _add_missing_command(app: typer.Typer, name: str, summary: str) -> None:
    @app.command(name, help=summary, context_settings={"ignore_unknown_options": True})
    def explain_how_to_install(arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        with exit_on_error():
            raise InputError(
                f'"watersmeet {name}" belongs to the laboratory, which is not installed',
                hint="run `pip install ./lab` in a checkout of Watersmeet",
            )
