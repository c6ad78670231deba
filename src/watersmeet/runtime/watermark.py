"""Watermark of a query: the minimum over its streams, one batch behind, never moving backwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from watersmeet.algebra.windows import FOREVER_US
from watersmeet.operators.protocol import OperatorConfig
from watersmeet.sources.declarations import Sources, Stream


@dataclass(frozen=True, slots=True)
class Lateness:
    """Lateness settings of a stream.

    Rows may be `lateness_us` late. After a silence of `idle_us`, the stream no longer holds back the watermark of the
    query.
    """

    lateness_us: int = 0
    idle_us: int | None = None


@dataclass(frozen=True, slots=True)
class Watermark:
    """Watermark of a query: the minimum over its streams of `max ts seen, rounded down to a millisecond, − lateness`.

    The clock for idle streams is the largest event time seen on any stream, so that a replay decides the same.

    >>> mark = Watermark.start({"a": Lateness(lateness_us=2_000), "b": Lateness()})
    >>> mark.after_batch({"a": (0, 10_500), "b": (0, 50_000)}).value_us
    8000
    """

    streams: Mapping[str, Lateness]
    newest_us: Mapping[str, int]
    began_us: int | None = None
    value_us: int = -FOREVER_US

    @classmethod
    def start(cls, streams: Mapping[str, Lateness]) -> Watermark:
        """Return the watermark before the first batch."""
        return cls(MappingProxyType(dict(streams)), MappingProxyType({}))

    def to_dict(self) -> dict[str, Any]:
        """Return everything that batches change, as JSON values."""
        return {"newest_us": dict(self.newest_us), "began_us": self.began_us, "value_us": self.value_us}

    def resume(self, saved: Mapping[str, Any]) -> Watermark:
        """Return the watermark of the same streams with the values of `to_dict`."""
        newest_us = MappingProxyType(dict(saved["newest_us"]))
        return replace(self, newest_us=newest_us, began_us=saved["began_us"], value_us=saved["value_us"])

    @property
    def largest_us(self) -> int:
        """Largest event time seen on any stream; the row that has it was never late."""
        return max(self.newest_us.values(), default=-FOREVER_US)

    def after_batch(self, seen_us: Mapping[str, tuple[int, int]]) -> Watermark:
        """Return the watermark after a batch with these oldest and newest times by stream, including late rows."""
        newest = dict(self.newest_us)
        for name, (_, latest) in seen_us.items():
            newest[name] = max(latest, newest.get(name, latest))
        began = self.began_us
        if began is None and seen_us:
            began = min(oldest for oldest, _ in seen_us.values())
        moved = replace(self, newest_us=MappingProxyType(newest), began_us=began)
        return replace(moved, value_us=max(self.value_us, moved._minimum_us()))

    def _minimum_us(self) -> int:
        holding = [name for name in self.streams if not self._is_idle(name)] or list(self.newest_us)
        return min((self._stream_watermark_us(name) for name in holding), default=-FOREVER_US)

    def _stream_watermark_us(self, name: str) -> int:
        if name not in self.newest_us:
            return -FOREVER_US
        return self.newest_us[name] // 1_000 * 1_000 - self.streams[name].lateness_us

    def _is_idle(self, name: str) -> bool:
        idle_us = self.streams[name].idle_us
        if idle_us is None or self.began_us is None:
            return False
        clock = max(self.newest_us.values())
        return clock - self.newest_us.get(name, self.began_us) > idle_us


def collect_lateness(config: OperatorConfig, sources: Sources) -> dict[str, Lateness]:
    """Return the lateness settings of the query's streams by name."""
    lateness: dict[str, Lateness] = {}
    for i in config.stream_inputs:
        source = sources[config.inputs[i].name]
        if isinstance(source, Stream):
            lateness[config.inputs[i].name] = Lateness(source.lateness_us, source.idle_us)
    return lateness
