"""A shelf of state that the workers of one machine share: files in Spark's own local directory, mapped into memory.

Any worker may get any bucket's next batch. What the last one wrote to Spark's store it also puts on the shelf, under a name drawn for that
very entry, so another one need not have megabytes sent through the JVM. What is not on the shelf is read from the store.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Shelf:
    """A directory, or None where Spark names none: then nothing is kept and nothing found."""

    folder: Path | None

    @classmethod
    def of_run(cls, run: str) -> Shelf:
        """The shelf of one run of a query. Spark removes its local directory when it ends."""
        local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        return cls(Path(local) / f"watersmeet-{run}" if local and Path(local).is_dir() else None)

    def put(self, name: str, blob: bytes) -> None:
        """Puts a blob on the shelf; where there is no room for it, it is not there."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(exist_ok=True)
            half = self.folder / f"{name}.{os.getpid()}"
            half.write_bytes(blob)
            half.rename(self.folder / name)  # whoever sees the name sees all of it
        except OSError:
            self.drop(name)

    def get(self, name: str) -> pa.Buffer | None:
        if self.folder is None:
            return None
        try:
            with pa.memory_map(str(self.folder / name)) as opened:
                return opened.read_buffer()
        except OSError:
            return None

    def drop(self, name: str) -> None:
        if self.folder is not None:
            (self.folder / name).unlink(missing_ok=True)
