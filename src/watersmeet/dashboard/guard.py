"""Access to the dashboard: a browser on this machine that has the token, within bounds on connections.

The Host header must name this server. Otherwise a foreign page whose name resolves to 127.0.0.1 could read answers (DNS
rebinding). The token is part of the first address and then lives in a cookie; programs send it as a bearer token.

The dashboard runs in the process of the job. Anyone on this machine can connect to it without a token, and each
connection takes a file descriptor that the job may need. So the number of connections is bounded, and a connection that
sends no request is closed.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Hashes of the two style elements that the chart library adds: an empty one, which it fills rule by rule, and the
#: fixed style sheet of its maps. No other inline style is allowed.
_CHART_STYLES = (
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=' 'sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o='"
)

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        f"style-src 'self' {_CHART_STYLES}",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class AccessGuard:
    """Middleware that passes a request to the app or refuses it, and adds the security headers to every response."""

    app: ASGIApp
    token: str
    port: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # the dashboard has no web sockets
            return
        refusal = self._refusal(scope)
        answer = self.app if refusal is None else PlainTextResponse(refusal + "\n", 403)
        await answer(scope, receive, self._with_headers(scope, send))

    def _refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self._hosts:
            return "this server answers to its loopback address only"
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self._hosts}:
            return "requests from other pages are refused"
        if not any(secrets.compare_digest(each.encode(), self.token.encode()) for each in self._tokens(scope, headers)):
            return "open the address that the command printed: it contains the required token"
        return None

    @property
    def _hosts(self) -> set[str]:
        return {f"127.0.0.1:{self.port}", f"localhost:{self.port}"}

    @property
    def _cookie(self) -> str:
        return f"watersmeet_{self.port}"  # cookies ignore ports, and two dashboards may run at the same time

    def _tokens(self, scope: Scope, headers: Headers) -> list[str]:
        tokens = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            tokens.append(bearer.strip())
        return [*tokens, *_cookie_values(headers.get("cookie", ""), self._cookie)]

    def _with_headers(self, scope: Scope, send: Send) -> Send:
        query_token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                if query_token == self.token and message["status"] == 200:
                    headers.append("Set-Cookie", f"{self._cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict")
            await send(message)

        return send_with_headers


def _cookie_values(header: str, name: str) -> list[str]:
    try:
        cookie = SimpleCookie(header)
    except CookieError:
        return []
    return [cookie[name].value] if name in cookie else []


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds that leave room for a few browsers, each with the six connections that browsers open."""

    max_connections: int = 48
    #: A browser sends its request at once. A connection without a request is closed after this time.
    request_timeout_s: float = 20.0
    keep_alive_s: int = 5
    #: Connections that the operating system accepts before the server sees them.
    backlog: int = 32


def bounded_protocol(limits: ConnectionLimits) -> type[H11Protocol]:
    """Return uvicorn's HTTP protocol, within these limits.

    When all connections are taken, a new one evicts an idle one: first those that never sent a request, the oldest
    first. So idle connections cannot lock a user out.
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
