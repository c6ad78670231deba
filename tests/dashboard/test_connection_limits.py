"""Connections that send nothing: they neither take the job's file descriptors nor lock a user out."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.dashboard.conftest import ServedRun
from tests.dashboard.test_dashboard_of_a_run import add, growing, read_address  # noqa: F401 # `growing` is a fixture
from watersmeet.dashboard.guard import ConnectionLimits
from watersmeet.dashboard.server import DashboardAddress, serve

MANY = 300


@contextmanager
def idle_connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as opened:
        yield [opened.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)]


def wait_until_closed(connection: socket.socket) -> None:
    """Block until the server closes the connection; the watchdog of the test run ends a wait that never ends."""
    with suppress(ConnectionResetError):
        assert connection.recv(1) == b""


def status_of(address: DashboardAddress, path: str = "/api/plan") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", address.port)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {address.token}"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_all_but_a_few_of_many_idle_connections_are_closed(served_run: ServedRun) -> None:
    limits = ConnectionLimits(max_connections=8, request_timeout_s=3_600)
    with serve(served_run.content, 0, limits=limits) as address, idle_connections(address.port, MANY) as idle:
        for connection in idle[: MANY - limits.max_connections]:
            wait_until_closed(connection)
        assert status_of(address) == 200


def test_a_connection_that_sends_no_request_is_closed(served_run: ServedRun) -> None:
    with (
        serve(served_run.content, 0, limits=ConnectionLimits(request_timeout_s=0.01)) as address,
        idle_connections(address.port, 3) as idle,
    ):
        with suppress(ConnectionError):  # it may be closed already
            idle[1].sendall(b"GET / HTTP/1.1\r\nHost: ")
        for connection in idle:
            wait_until_closed(connection)


def test_a_request_that_is_being_answered_is_not_closed_for_a_new_one(served_run: ServedRun) -> None:
    limits = ConnectionLimits(max_connections=2, request_timeout_s=3_600)
    with (
        serve(served_run.content, 0, limits=limits) as address,
        socket.create_connection(("127.0.0.1", address.port)) as asking,
    ):
        head = (
            f"POST /api/what-if HTTP/1.1\r\nHost: 127.0.0.1:{address.port}\r\nAuthorization: Bearer {address.token}\r\n"
        )
        asking.sendall(f"{head}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n".encode())
        assert asking.recv(1_000).startswith(b"HTTP/1.1 100")  # the server waits for the question now
        with idle_connections(address.port, 10) as idle:
            for connection in idle[:9]:
                wait_until_closed(connection)
            asking.sendall(b"{}")
            assert asking.recv(1_000).startswith(b"HTTP/1.1 200")


def test_a_job_goes_on_while_more_connections_come_than_it_may_open_files(growing: Path) -> None:  # noqa: F811
    streams = [part for name in ("a", "b") for part in ("--stream", f"{name}={growing / name},time=ts")]
    more = ["--follow", "--json", "--ui", "--port", "0", "--out", str(growing / "out")]
    command = [sys.executable, "-m", "watersmeet", "run", str(growing / "query.sql"), *streams, *more]
    with subprocess.Popen(
        ["/bin/sh", "-c", 'ulimit -n 200; exec "$@"', "sh", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        try:
            address = read_address(job.stderr)
            assert json.loads(job.stdout.readline())["batch"] == 0
            with idle_connections(address.port, MANY):
                add(growing, 1)
                assert json.loads(job.stdout.readline())["batch"] == 1
                assert status_of(address) == 200
                assert len(os.listdir(f"/proc/{job.pid}/fd")) < 200
        finally:
            job.send_signal(signal.SIGINT)
            job.wait()
