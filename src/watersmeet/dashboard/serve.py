"""The dashboard's server: on the loopback interface, in a thread of its own, until it is stopped."""

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
    """Where a dashboard answers, and the token it wants."""

    port: int
    token: str

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/?token={self.token}"


@contextmanager
def serve(
    shown: DashboardContent,
    port: int = DEFAULT_PORT,
    on_failure: Callable[[], None] = lambda: None,
    limits: ConnectionLimits = DEFAULT_LIMITS,
) -> Iterator[DashboardAddress]:
    """Serve while the block runs; port 0 takes any free port.

    If the server fails, `on_failure` is called at once, to end the block, and the error is raised at its end.
    """
    listening = _open_socket(port, limits.backlog)
    address = DashboardAddress(listening.getsockname()[1], secrets.token_urlsafe(24))
    app = create_app(shown, address.token, address.port)
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
            # a client that reads nothing must not hold up the end of the job
            timeout_graceful_shutdown=limits.keep_alive_s,
        )
    )
    thread = BackgroundThread("the dashboard's server", partial(server.run, sockets=[listening]), on_failure).start()
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
        thread.raise_failure()


def _open_socket(port: int, backlog: int) -> socket.socket:
    """Open a socket of our own, so that a taken port is known before anything else starts. It listens at once: requests
    wait.
    """
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((LOOPBACK, port))
        opened.listen(backlog)
    except (OSError, OverflowError) as error:
        opened.close()
        raise InputError(
            f"the dashboard cannot listen on port {port} of {LOOPBACK}: {getattr(error, 'strerror', None) or error}",
            hint="another program has that port, maybe another dashboard: stop it, or take a free port with --port 0",
        ) from error
    return opened
