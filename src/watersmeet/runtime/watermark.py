"""The watermark of a query: the minimum over its streams, a batch behind, never moving back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from watersmeet.algebra.windows import FOREVER_US


@dataclass(frozen=True, slots=True)
class Lateness:
    """What a stream declares: how late its rows may be, and after how long a silence it stops holding the others back."""

    lateness_us: int = 0
    idle_us: int | None = None


@dataclass(frozen=True, slots=True)
class Watermark:
    """`max ts seen, rounded down to a millisecond, − lateness` per stream; the query's is the minimum.

    The clock for silence is the largest event time seen on any stream, so that a replay decides the same.

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
        return cls(MappingProxyType(dict(streams)), MappingProxyType({}))

    @property
    def largest_us(self) -> int:
        """The largest time seen on any stream; the row that has it was never late."""
        return max(self.newest_us.values(), default=-FOREVER_US)

    def after_batch(self, seen_us: Mapping[str, tuple[int, int]]) -> Watermark:
        """The watermark once a batch is over that brought rows between these oldest and newest times, late ones
        included.
        """
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
