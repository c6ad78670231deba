"""The grid of buckets in a query's checkpoint, so that a restart spreads rows as the state was spread.

State lies under the buckets' labels. The rates of the streams may differ at every start, and with them the grid that
would be chosen. So the grid of a query's first start is stored next to Spark's own logs before the first batch, and
every later start uses it. Every bucket also keeps the grid in its header (`store`): if the stored one is lost, a
restart with another grid is refused, and no row is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from watersmeet.checkpoint.framing import DamagedFileError, encode_frame, read_frame
from watersmeet.errors import InputError
from watersmeet.files import write_atomically
from watersmeet.operators.window_join.config import MeetConfig
from watersmeet.runtime.spark.bucket_grid import Axis, Grouping, Layout, axes_of

GRID_FRAME = "grid"
_RESTORE_GRID = "restore it from a copy, or delete it and start with the statistics of the query's first start"


@dataclass(frozen=True, slots=True)
class GridStore:
    """File of a checkpoint that holds the grid of its buckets."""

    checkpoint: Path

    @classmethod
    def at(cls, location: str | Path) -> GridStore:
        """Return the store of a checkpoint location, given as Spark writes it.

        Refuse a location that this process cannot read and write.
        """
        text = str(location)
        scheme, separator, _ = text.partition(":")
        if separator and len(scheme) > 1 and scheme != "file" and not Path(text).is_absolute():
            raise InputError(
                f'the grid of buckets cannot be stored in "{text}": only a checkpoint in a file system of this machine can hold it',
                hint="leave checkpoint out and declare the rates of the streams with stats",
            )
        return cls(Path("/" + text.removeprefix("file:").lstrip("/") if scheme == "file" else text))

    @property
    def has_started(self) -> bool:
        """Whether a batch of the query was ever planned: then the checkpoint may contain its state."""
        offsets = self.checkpoint / "offsets"
        return offsets.is_dir() and any(file.name.isdigit() for file in offsets.iterdir())

    def load(self, query: str, config: MeetConfig, grouping: Grouping | None) -> Layout | None:
        """Return the stored grid of this query, or None where there is none."""
        if not self._file.exists():
            return None
        try:
            header = read_frame(self._file, GRID_FRAME).header
            if header["query"] != query:
                return None  # the headers of its buckets name the difference
            return Layout(tuple(_find_axis(each, config, grouping) for each in header["axes"]))
        except DamagedFileError as error:
            raise DamagedFileError(error.place, error.wrong, hint=_RESTORE_GRID) from error
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFileError(
                self._file, "is damaged: its grid does not fit the query", hint=_RESTORE_GRID
            ) from error

    def save(self, query: str, grid: Layout) -> None:
        """Write the grid atomically."""
        axes = [
            {"share": axis.share, "class": axis.key_class, "input": axis.split, "by_group": bool(axis.keys)}
            for axis in grid.axes
        ]
        write_atomically(self._file, encode_frame(GRID_FRAME, {"query": query, "axes": axes})[0])

    @property
    def _file(self) -> Path:
        return self.checkpoint / "watersmeet" / "grid.json"


def _find_axis(saved: dict[str, Any], config: MeetConfig, grouping: Grouping | None) -> Axis:
    for axis in axes_of(config, grouping):
        if (axis.key_class, axis.split, bool(axis.keys)) == (saved["class"], saved["input"], saved["by_group"]):
            return replace(axis, share=int(saved["share"]))
    raise ValueError("the query does not have this axis")
