"""Server of the dashboard: on the loopback interface, in its own thread, until it is stopped."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import uvicorn

from watersmeet.dashboard.app import DashboardContent, create_app
from watersmeet.dashboard.guard import ConnectionLimits, bounded_protocol
from watersmeet.errors import InputError
from watersmeet.runtime.background import BackgroundThread

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8470
DEFAULT_LIMITS = ConnectionLimits()


@dataclass(frozen=True)
class DashboardAddress:
    """Port of a dashboard and the token that it requires."""

    port: int
    token: str

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/?token={self.token}"


@contextmanager
def serve(
    content: DashboardContent,
    port: int = DEFAULT_PORT,
    on_failure: Callable[[], None] = lambda: None,
    limits: ConnectionLimits = DEFAULT_LIMITS,
) -> Iterator[DashboardAddress]:
    """Serve the dashboard while the block runs; port 0 selects a free port.

    If the server fails, it calls `on_failure` at once, so that the block can end. The error is raised after the block.
    """
    listener = _open_socket(port, limits.backlog)
    address = DashboardAddress(listener.getsockname()[1], secrets.token_urlsafe(24))
    app = create_app(content, address.token, address.port)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            http=bounded_protocol(limits),
            timeout_keep_alive=limits.keep_alive_s,
            backlog=limits.backlog,
            # a client that reads nothing must not delay the end of the job
            timeout_graceful_shutdown=limits.keep_alive_s,
        )
    )
    thread = BackgroundThread("the dashboard's server", partial(server.run, sockets=[listener]), on_failure).start()
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
        thread.raise_failure()


def _open_socket(port: int, backlog: int) -> socket.socket:
    """Open the socket first, so that a taken port is reported before anything else starts. Early requests wait."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((LOOPBACK, port))
        opened.listen(backlog)
    except (OSError, OverflowError) as error:
        opened.close()
        raise InputError(
            f"the dashboard cannot listen on port {port} of {LOOPBACK}: {getattr(error, 'strerror', None) or error}",
            hint="another program uses this port, maybe another dashboard: stop it, or use a free port with --port 0",
        ) from error
    return opened
