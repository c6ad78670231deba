"""Findings about a checkpoint, and the checks of a checkpoint of the embedded engine.

A fix moves files aside and never deletes one. It is offered only where the next run then writes the same rows.

- A state can be recomputed from an older one while the records and input files of all batches in between exist.
- The files of a batch may be chosen again while the batch has written no row.
- Nothing else can be fixed, because then the files that were read are unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watersmeet.checkpoint.contents import (
    CheckpointContents,
    Damage,
    FileKind,
    InputProblem,
    batch_path,
    find_input_problems,
    manifest_path,
    read_contents,
    state_path,
)
from watersmeet.checkpoint.owner import owner_path, read_owner
from watersmeet.framing import DamagedFileError
from watersmeet.sinks import list_part_files

ASIDE = ".damaged"
_START_AGAIN = "start again with a new checkpoint and a new output directory"


@dataclass(frozen=True, slots=True)
class Finding:
    """Problem of one file, and the effect of its fix.

    A fix moves the files of `aside` out of the way. If there are none, the problem cannot be fixed.
    """

    path: Path
    problem: str
    consequence: str
    aside: tuple[Path, ...] = ()

    @property
    def is_fixable(self) -> bool:
        """Whether moving files aside fixes the problem."""
        return bool(self.aside)

    def fix(self) -> None:
        """Move the files aside, under a name that no reader opens. Another finding may have moved one before."""
        for file in self.aside:
            if file.exists():
                file.rename(file.with_name(f".{file.name}{ASIDE}"))

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return {
            "file": str(self.path),
            "wrong": self.problem,
            "meaning": self.consequence,
            "can_be_mended": self.is_fixable,
        }


def find_embedded_problems(path: Path, out: Path | None) -> Iterator[Finding]:
    """Yield all problems of a checkpoint of the embedded engine."""
    contents = read_contents(path, all_states=True)
    if out is None and contents.manifest is not None and contents.manifest.identity.out is not None:
        out = Path(contents.manifest.identity.out)
    for damage in contents.damages:
        yield _report_damage(contents, damage, out)
    if not contents.damages:
        yield from _find_lost_inputs(contents, out)
    if out is not None:
        yield from _find_output_problems(contents, out)
    yield from _find_leftovers(path)


def _report_damage(contents: CheckpointContents, damage: Damage, out: Path | None) -> Finding:
    if damage.kind is FileKind.MANIFEST:
        return Finding(
            damage.path, damage.problem, f"the query of this checkpoint is unknown without it; {_START_AGAIN}"
        )
    if damage.kind in (FileKind.STATE, FileKind.PARTS):
        return _report_state_damage(contents, damage)
    return _report_record_damage(contents, damage, out)


def _report_record_damage(contents: CheckpointContents, damage: Damage, out: Path | None) -> Finding:
    """Report a damaged record. It is harmless while its batch has written no row: the files are chosen again."""
    is_in_flight = damage.batch == contents.last_committed + 1 and damage.batch == contents.last_record
    if not is_in_flight or contents.manifest is None:
        return Finding(
            damage.path, damage.problem, f"the files of this batch are unknown, and would be read twice; {_START_AGAIN}"
        )
    if out is not None and damage.batch in list_part_files(out):
        return Finding(
            damage.path, damage.problem, f"the batch has written rows, and its input files are unknown; {_START_AGAIN}"
        )
    return Finding(
        damage.path, damage.problem, "the batch has written no row: its files are chosen again", (damage.path,)
    )


def _report_state_damage(contents: CheckpointContents, damage: Damage) -> Finding:
    newest = max(contents.states, default=-1)
    if newest == contents.last_committed:
        return Finding(
            damage.path, damage.problem, "the state after it is intact, so nothing needs this one", (damage.path,)
        )
    lost = next((batch for batch in range(newest + 1, contents.last_record + 1) if batch not in contents.records), None)
    if lost is not None or contents.manifest is None:
        where = manifest_path(contents.path) if lost is None else batch_path(contents.path, lost)
        return Finding(damage.path, damage.problem, f'it cannot be computed again without "{where}"; {_START_AGAIN}')
    problem = next(_find_input_problems(contents, newest), None)
    if problem is not None:
        rerun = f'batch {problem.batch} has to run again, and its input "{problem.path}" {problem.description}'
        return Finding(damage.path, damage.problem, f"{rerun}; restore that file first")
    before = "an empty state" if newest < 0 else f"the state after batch {newest}"
    return Finding(
        damage.path,
        damage.problem,
        f"the next run starts from {before} and runs the batches since then again",
        (damage.path, *(state_path(contents.path, batch) for batch in contents.list_states_after(newest))),
    )


def _find_lost_inputs(contents: CheckpointContents, out: Path | None) -> Iterator[Finding]:
    """Yield missing or changed input files of batches that the next run reruns.

    A changed file counts only if rows of the batch were written.
    """
    written = list_part_files(out) if out is not None else {}
    for problem in _find_input_problems(contents, contents.last_committed):
        if problem.is_missing or problem.batch in written:
            yield Finding(
                problem.path,
                problem.description,
                f"batch {problem.batch} has to run again and reads it; restore that file",
            )


def _find_input_problems(contents: CheckpointContents, after: int) -> Iterator[InputProblem]:
    if contents.manifest is None:
        return iter(())
    streams = {name: Path(each["path"]) for name, each in contents.manifest.identity.streams.items() if "path" in each}
    return find_input_problems(streams, contents.records, after)


def _find_output_problems(contents: CheckpointContents, out: Path) -> Iterator[Finding]:
    marker = owner_path(out)
    try:
        owner = read_owner(out)
    except DamagedFileError as error:
        yield Finding(marker, error.problem, "the next run writes it again", (marker,))
        return
    if owner is not None and contents.manifest is not None and owner.checkpoint_id != contents.manifest.checkpoint_id:
        description = (
            f'"{out}" belongs to checkpoint "{owner.checkpoint}"'
            if owner.checkpoint
            else f'"{out}" belongs to a run without a checkpoint'
        )
        yield Finding(marker, "names another owner", f"{description}; {_START_AGAIN}")
        return
    newest = max(list_part_files(out), default=-1)
    if newest > contents.last_record:
        lost = batch_path(contents.path, contents.last_record + 1)
        yield Finding(
            lost,
            f'is missing, but "{out}" holds rows of batch {newest}',
            f"this checkpoint is older than its output; {_START_AGAIN}",
        )


def _find_leftovers(path: Path) -> Iterator[Finding]:
    for directory in (path, path / "batches", path / "parts", path / "states"):
        for file in sorted(directory.glob(".*")) if directory.is_dir() else ():
            if file.is_file() and not file.name.endswith(ASIDE):
                yield Finding(file, "was never finished", "nothing reads it", (file,))
