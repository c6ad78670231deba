"""The grid of buckets in a query's checkpoint, so that a restart spreads rows as the state was spread.

State lies under the buckets' labels. The rates of the streams may differ at every start, and with them the grid that would be chosen. So
the grid that a query starts with is stored beside Spark's own logs before the first batch, and every later start uses it. Every bucket also
keeps the grid in its header (`store`): should the stored one be lost, a restart with another grid is refused, and no row is lost.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from watersmeet.errors import InputError
from watersmeet.operators.meet.config import MeetConfig
from watersmeet.runtime.spark.layout import Axis, Grouping, Layout, axes_of

VERSION = 1


@dataclass(frozen=True, slots=True)
class GridStore:
    """The file of a checkpoint that has the grid of its buckets."""

    checkpoint: Path

    @classmethod
    def at(cls, location: str | Path) -> GridStore:
        """Return the store of a checkpoint location, as Spark writes it; refuse one that this process cannot read and write."""
        text = str(location)
        scheme, separator, _ = text.partition(":")
        if separator and len(scheme) > 1 and scheme != "file" and not Path(text).is_absolute():
            raise InputError(
                f'the grid of buckets cannot be stored in "{text}": only a checkpoint in a file system of this machine can hold it',
                hint="leave checkpoint out and declare the rates of the streams with stats",
            )
        return cls(Path("/" + text.removeprefix("file:").lstrip("/") if scheme == "file" else text))

    @property
    def has_begun(self) -> bool:
        """Whether a batch of the query was ever planned: then its state may lie in the checkpoint."""
        offsets = self.checkpoint / "offsets"
        return offsets.is_dir() and any(file.name.isdigit() for file in offsets.iterdir())

    def load(self, query: str, config: MeetConfig, grouping: Grouping | None) -> Layout | None:
        """Return the stored grid of this query, or None where there is none."""
        if not self._file.exists():
            return None
        try:
            saved = json.loads(self._file.read_text(encoding="utf-8"))
            content = saved["grid"]
            if saved["version"] != VERSION or saved["sha256"] != _digest(content):
                raise ValueError
            if content["query"] != query:
                return None  # the headers of its buckets say what differs
            return Layout(tuple(_axis(each, config, grouping) for each in content["axes"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f'checkpoint file "{self._file}" is damaged',
                hint="restore it from a copy, or delete it and start with the statistics that the query was first started with",
            ) from error

    def save(self, query: str, grid: Layout) -> None:
        """Write the grid in one step: it is there as a whole or not at all."""
        axes = [{"share": axis.share, "class": axis.key_class, "input": axis.split, "by_group": bool(axis.keys)} for axis in grid.axes]
        content = {"query": query, "axes": axes}
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            beside = self._file.with_name(f"{uuid.uuid4().hex}.new")
            beside.write_text(json.dumps({"version": VERSION, "sha256": _digest(content), "grid": content}), encoding="utf-8")
            os.replace(beside, self._file)
        except OSError as error:
            raise InputError(f'checkpoint "{self.checkpoint}" cannot be used: {error.strerror or error}') from error

    @property
    def _file(self) -> Path:
        return self.checkpoint / "watersmeet" / "grid.json"


def _axis(saved: dict[str, Any], config: MeetConfig, grouping: Grouping | None) -> Axis:
    for axis in axes_of(config, grouping):
        if (axis.key_class, axis.split, bool(axis.keys)) == (saved["class"], saved["input"], saved["by_group"]):
            return replace(axis, share=int(saved["share"]))
    raise ValueError("an axis that the query does not have")


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
