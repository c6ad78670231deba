"""Check a checkpoint of the embedded engine file by file.

A fix moves files aside and never deletes one. It is offered only where the next run then writes the same rows. A state
can be computed again from an older one while the records and the input files of all batches in between are there. A
batch may be chosen again while it has written no row. Nothing else can be fixed, because then nobody knows which files
were read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from watersmeet.checkpoint.contents import Contents, Damage, Kind, batch_path, manifest_path, read_contents
from watersmeet.checkpoint.framing import DamagedFileError
from watersmeet.checkpoint.input_files import InputProblem, input_problems
from watersmeet.checkpoint.owner import owner_path, read_owner
from watersmeet.checkpoint.repair.finding import ASIDE, Finding
from watersmeet.checkpoint.repair.spark import is_spark_checkpoint, spark_findings
from watersmeet.errors import InputError
from watersmeet.sinks.part_files import part_files

_START_AGAIN = "start again with a new checkpoint and a new output directory"


def findings(path: Path, out: Path | None = None) -> list[Finding]:
    """List everything that is wrong with a checkpoint directory. `out` is where the query's rows are, if they were
    moved.
    """
    if not path.is_dir():
        raise InputError(f'there is no directory "{path}"')
    if manifest_path(path).exists() or (path / "batches").is_dir():
        return list(_embedded_findings(path, out))
    if is_spark_checkpoint(path):
        return spark_findings(path, out)
    raise InputError(
        f'"{path}" is not a checkpoint',
        hint="a checkpoint of the embedded engine has about.json and batches in it, one of Spark metadata and offsets",
    )


def _embedded_findings(path: Path, out: Path | None) -> Iterator[Finding]:
    contents = read_contents(path, all_states=True)
    if out is None and contents.manifest is not None and contents.manifest.about.out is not None:
        out = Path(contents.manifest.about.out)
    for damage in contents.damages:
        yield _damage_finding(contents, damage, out)
    if not contents.damages:
        yield from _lost_inputs(contents, out)
    if out is not None:
        yield from _output_findings(contents, out)
    yield from _leftovers(path)


def _damage_finding(contents: Contents, damage: Damage, out: Path | None) -> Finding:
    if damage.kind is Kind.MANIFEST:
        return Finding(
            damage.place, damage.wrong, f"the query of this checkpoint is unknown without it; {_START_AGAIN}"
        )
    if damage.kind is Kind.STATE:
        return _state_finding(contents, damage)
    return _record_finding(contents, damage, out)


def _record_finding(contents: Contents, damage: Damage, out: Path | None) -> Finding:
    """A lost list of files costs nothing while its batch has written no row: the files are chosen again."""
    is_in_flight = damage.batch == contents.committed + 1 and damage.batch == contents.last_record
    if not is_in_flight or contents.manifest is None:
        return Finding(
            damage.place, damage.wrong, f"the files of this batch are unknown, and would be read twice; {_START_AGAIN}"
        )
    if out is not None and damage.batch in part_files(out):
        return Finding(
            damage.place, damage.wrong, f"the batch has written rows, and its input files are unknown; {_START_AGAIN}"
        )
    return Finding(
        damage.place, damage.wrong, "the batch has written no row: its files are chosen again", (damage.place,)
    )


def _state_finding(contents: Contents, damage: Damage) -> Finding:
    newest = max(contents.states, default=-1)
    if newest > damage.batch:
        return Finding(
            damage.place, damage.wrong, "the state after it is intact, so nothing needs this one", (damage.place,)
        )
    lost = next((batch for batch in range(newest + 1, contents.last_record + 1) if batch not in contents.records), None)
    if lost is not None or contents.manifest is None:
        where = manifest_path(contents.path) if lost is None else batch_path(contents.path, lost)
        return Finding(damage.place, damage.wrong, f'it cannot be computed again without "{where}"; {_START_AGAIN}')
    problem = next(_input_problems(contents, newest), None)
    if problem is not None:
        words = f'batch {problem.batch} has to run again, and its input "{problem.place}" {problem.wrong}; restore that file first'
        return Finding(damage.place, damage.wrong, words)
    before = "an empty state" if newest < 0 else f"the state after batch {newest}"
    return Finding(
        damage.place,
        damage.wrong,
        f"the next run starts from {before} and runs the batches since then again",
        (damage.place,),
    )


def _lost_inputs(contents: Contents, out: Path | None) -> Iterator[Finding]:
    """Inputs of batches that the next run has to run again. A changed file counts only if rows of the batch were
    written.
    """
    written = part_files(out) if out is not None else {}
    for problem in _input_problems(contents, contents.committed):
        if problem.is_missing or problem.batch in written:
            yield Finding(
                problem.place, problem.wrong, f"batch {problem.batch} has to run again and reads it; restore that file"
            )


def _input_problems(contents: Contents, after: int) -> Iterator[InputProblem]:
    if contents.manifest is None:
        return iter(())
    streams = {name: Path(each["path"]) for name, each in contents.manifest.about.streams.items() if "path" in each}
    return input_problems(streams, contents.records, after)


def _output_findings(contents: Contents, out: Path) -> Iterator[Finding]:
    place = owner_path(out)
    try:
        owner = read_owner(out)
    except DamagedFileError as error:
        yield Finding(place, error.wrong, "the next run writes it again", (place,))
        return
    if owner is not None and contents.manifest is not None and owner.checkpoint_id != contents.manifest.checkpoint_id:
        words = (
            f'"{out}" belongs to checkpoint "{owner.checkpoint}"'
            if owner.checkpoint
            else f'"{out}" belongs to a run without a checkpoint'
        )
        yield Finding(place, "names another owner", f"{words}; {_START_AGAIN}")
        return
    newest = max(part_files(out), default=-1)
    if newest > contents.last_record:
        lost = batch_path(contents.path, contents.last_record + 1)
        yield Finding(
            lost,
            f'is missing, but "{out}" holds rows of batch {newest}',
            f"this checkpoint is older than its output; {_START_AGAIN}",
        )


def _leftovers(path: Path) -> Iterator[Finding]:
    for directory in (path, path / "batches", path / "states"):
        for file in sorted(directory.glob(".*")) if directory.is_dir() else ():
            if file.is_file() and not file.name.endswith(ASIDE):
                yield Finding(file, "was never finished", "nothing reads it", (file,))
