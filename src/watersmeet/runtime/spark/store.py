"""A bucket's state in Spark's store: a header, and one entry per part of the operator's state.

An entry is written once and deleted once. Decoded state is remembered in the worker's memory under a token that is drawn anew with every
write and stands in the header: what is remembered is used only if the store holds that very version, so nothing depends on it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa

from watersmeet.errors import InputError
from watersmeet.operators.meet.parts import SavedPart
from watersmeet.runtime.spark.bucket import BucketState
from watersmeet.runtime.spark.operator import Operator, Part
from watersmeet.runtime.spark.shelf import Shelf
from watersmeet.runtime.watermark import Lateness, Watermark


class Value(Protocol):
    """Spark's ValueState."""

    def get(self) -> Any: ...

    def update(self, newValue: Any) -> None: ...  # noqa: N803 # Spark's own name


class Entries(Protocol):
    """Spark's MapState."""

    def getValue(self, key: Any) -> Any: ...  # noqa: N802 # Spark's own names

    def updateValue(self, key: Any, value: Any) -> None: ...  # noqa: N802

    def removeKey(self, key: Any) -> None: ...  # noqa: N802


class Keeper(Protocol):
    """Whose state it is."""

    @property
    def operator(self) -> Operator: ...

    @property
    def lateness(self) -> Mapping[str, Lateness]: ...

    def empty(self) -> BucketState: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a part is kept: its place in Spark's store, and its name on the shelf, drawn when it was written."""

    place: int
    name: str
    number: int
    kind: str
    rows: int
    size: int


@dataclass(frozen=True)
class Remembered:
    """State as it is in memory, with the entry of every part by the part's identity. The parts are held, so identities stay theirs."""

    token: str
    version: int
    next_place: int
    state: BucketState
    parts: Sequence[Part]
    entries: Mapping[int, Entry]

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries.values())

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.entries.values())


#: By run and bucket, in each worker process.
_memory: dict[tuple[str, int], Remembered] = {}


@dataclass(frozen=True)
class Store:
    """The state of one bucket. `signature` says which query it belongs to, `run` which run of it; `remembers` turns the memory on."""

    header: Value
    entries: Entries
    bucket: Keeper
    signature: Mapping[str, str]
    run: str
    remembers: bool

    def load(self, label: int) -> Remembered:
        saved = self.header.get()
        if saved is None:
            return Remembered("", 0, 0, self.bucket.empty(), (), {})
        header = json.loads(saved[0])
        refuse_another_query(header["signature"], self.signature)
        remembered = _memory.pop((self.run, label), None)  # a step may change what it is given, so an attempt that fails leaves nothing
        if remembered is not None and remembered.token == header["token"]:
            return remembered
        return self._read(header)

    def save(self, label: int, before: Remembered, state: BucketState) -> Remembered:
        """Writes the parts that are new, deletes those that are gone, and the header last."""
        parts = self.bucket.operator.parts(state.inner)
        entries: dict[int, Entry] = {}
        place = before.next_place
        for part in parts:
            known = before.entries.get(id(part.value))
            if known is None:
                blob = part.bytes()
                known = Entry(place, uuid.uuid4().hex, part.number, part.kind, part.rows, len(blob))
                self.entries.updateValue((place,), (blob,))
                self._shelf.put(known.name, blob)
                place += 1
            entries[id(part.value)] = known
        for gone in {*before.entries.values()} - {*entries.values()}:
            self.entries.removeKey((gone.place,))
            self._shelf.drop(gone.name)
        after = Remembered(uuid.uuid4().hex, before.version + 1, place, state, parts, entries)
        self.header.update((json.dumps(self._header(after)),))
        self._remember(label, after)
        return after

    def _read(self, header: dict[str, Any]) -> Remembered:
        listed = [Entry(*values) for values in header["entries"]]
        saved = [SavedPart(entry.number, entry.kind, self._blob(entry)) for entry in listed]
        state = BucketState(self.bucket.operator.restored(saved), _watermark(self.bucket, header["watermark"]))
        parts = self.bucket.operator.parts(state.inner)
        entries = {id(part.value): entry for part, entry in zip(parts, listed, strict=True)}
        return Remembered(header["token"], header["version"], header["next_place"], state, parts, entries)

    @property
    def _shelf(self) -> Shelf:
        return Shelf.of_run(self.run) if self.remembers else Shelf(None)

    def _blob(self, entry: Entry) -> bytes | pa.Buffer:
        shelved = self._shelf.get(entry.name)
        if shelved is not None:
            return shelved
        found = self.entries.getValue((entry.place,))
        if found is None:
            raise InputError(
                f"the checkpoint is damaged: entry {entry.place} of its state is missing", hint="start from an earlier copy of it"
            )
        return bytes(found[0])

    def _header(self, after: Remembered) -> dict[str, Any]:
        ordered = [after.entries[id(part.value)] for part in after.parts]
        watermark = after.state.watermark
        return {
            "signature": dict(self.signature),
            "token": after.token,
            "version": after.version,
            "next_place": after.next_place,
            "watermark": {"newest_us": dict(watermark.newest_us), "began_us": watermark.began_us, "value_us": watermark.value_us},
            "entries": [[e.place, e.name, e.number, e.kind, e.rows, e.size] for e in ordered],
        }

    def _remember(self, label: int, after: Remembered) -> None:
        if not self.remembers:
            return
        for key in [key for key, each in _memory.items() if key[0] == self.run and each.version < after.version - 1]:
            del _memory[key]  # another worker has gone on with these
        _memory[self.run, label] = after


def refuse_another_query(saved: Mapping[str, str], mine: Mapping[str, str]) -> None:
    """The checkpoint of another query is not to be continued; the error says what differs."""
    for what in (*saved, *mine):
        was, now = saved.get(what, "nothing"), mine.get(what, "nothing")
        if was != now:
            raise InputError(
                f"the checkpoint belongs to another query: {what} was {_one_line(was)}, and is {_one_line(now)}",
                hint="run the query it was made with, or give this one a new checkpoint location",
            )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _watermark(bucket: Keeper, saved: dict[str, Any]) -> Watermark:
    start = Watermark.start(bucket.lateness)
    return Watermark(start.streams, MappingProxyType(dict(saved["newest_us"])), saved["began_us"], saved["value_us"])
