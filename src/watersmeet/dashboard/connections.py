"""Bounds on the connections to the dashboard.

The dashboard runs in the process of the job. Anyone on this machine can connect to it, and each connection takes a file
descriptor that the job may need, before a token is sent. So the number of connections is bounded, and one that sends no
request is closed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds that leave room for a few browsers, each with the six connections that browsers open."""

    max_connections: int = 48
    #: A browser sends its request at once; whoever holds a connection longer than this is closed.
    request_timeout_s: float = 20.0
    keep_alive_s: int = 5
    #: Connections the system accepts for us before we look at them.
    backlog: int = 32


def bounded_protocol(limits: ConnectionLimits) -> type[H11Protocol]:
    """Return uvicorn's HTTP protocol, within these limits.

    When all connections are taken, an idle one makes room for the new one: first those that never sent a request, the
    oldest first. So idle connections cannot lock a user out.
    """

    class BoundedProtocol(H11Protocol):
        opened_s = float("inf")
        _request_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn declares it
            super().connection_made(transport)
            if len(self.connections) > limits.max_connections:
                others = (each for each in self.connections if each is not self and _is_idle(each))
                evicted = min(others, key=_eviction_order, default=self)
                evicted.transport.abort()
                self.connections.discard(evicted)  # `connection_lost` comes later; until then it would be counted
            self.opened_s = self.loop.time()
            self._request_timer = self.loop.call_later(limits.request_timeout_s, self._close_if_idle)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._request_timer is not None:
                self._request_timer.cancel()
            super().connection_lost(exc)

        def _close_if_idle(self) -> None:
            if self.cycle is None:
                self.transport.abort()

    return BoundedProtocol


def _is_idle(connection: Any) -> bool:
    """Return whether no request of a connection is being answered."""
    return connection.cycle is None or connection.cycle.response_complete


def _eviction_order(connection: Any) -> tuple[bool, float]:
    return connection.cycle is not None, connection.opened_s
