"""Find the problems of a checkpoint, and fix those that can be fixed without losing or duplicating rows."""

from __future__ import annotations

from pathlib import Path

from watersmeet.checkpoint.contents import manifest_path
from watersmeet.checkpoint.repair.findings import Finding, find_embedded_problems
from watersmeet.checkpoint.repair.spark import find_spark_problems, is_spark_checkpoint
from watersmeet.errors import InputError

__all__ = ["Finding", "find_problems"]


def find_problems(path: Path, out: Path | None = None) -> list[Finding]:
    """List all problems of a checkpoint directory, of either engine.

    `out` is the output directory. It is needed if the directory was moved, or if Spark has to rerun a batch.
    """
    if not path.is_dir():
        raise InputError(f'there is no directory "{path}"')
    if manifest_path(path).exists() or (path / "batches").is_dir():
        return list(find_embedded_problems(path, out))
    if is_spark_checkpoint(path):
        return find_spark_problems(path, out)
    raise InputError(
        f'"{path}" is not a checkpoint',
        hint="a checkpoint of the embedded engine has about.json and batches in it, one of Spark metadata and offsets",
    )
