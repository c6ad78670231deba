"""Access to the dashboard needs the loopback interface, the right Host header and the token."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import ServedRun
from watersmeet.dashboard.server import STATIC_FILES, serve
from watersmeet.errors import InputError

ROUTES = [
    "/",
    "/plotly.js",
    "/api/plan",
    "/api/figures",
    "/api/what-if",
    "/nothing",
    "/api/nothing",
    *(f"/{name}" for name in STATIC_FILES),
]

#: Socket state LISTEN and address 127.0.0.1, as /proc/net/tcp writes them.
LISTEN_STATE, LOOPBACK = "0A", "0100007F"


def send_request(
    served_run: ServedRun, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, bytes, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", served_run.address.port)
    try:
        connection.request(
            method, path, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


def bearer(served_run: ServedRun) -> str:
    return f"Bearer {served_run.address.token}"


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS"])
def test_every_route_without_the_token_is_refused(served_run: ServedRun, path: str, method: str) -> None:
    assert send_request(served_run, path, method)[0] == 403
    assert send_request(served_run, f"{path}?token=wrong", method)[0] == 403
    assert send_request(served_run, path, method, Authorization="Bearer wrong")[0] == 403
    assert send_request(served_run, path, method, Cookie=f"watersmeet_{served_run.address.port}=wrong")[0] == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "127.0.0.1", "", "localhost:1"]
)
def test_a_foreign_host_header_is_refused_even_with_the_token(served_run: ServedRun, host: str) -> None:
    named = host.format(port=served_run.address.port)
    assert send_request(served_run, "/", Host=named, Authorization=bearer(served_run))[0] == 403
    assert send_request(served_run, f"/?token={served_run.address.token}", Host=named)[0] == 403


def test_another_origin_is_refused(served_run: ServedRun) -> None:
    assert (
        send_request(served_run, "/api/plan", Origin="http://evil.example", Authorization=bearer(served_run))[0] == 403
    )


def test_the_token_is_accepted_as_parameter_cookie_or_bearer(served_run: ServedRun) -> None:
    status, _, headers = send_request(served_run, f"/?token={served_run.address.token}")
    assert status == 200
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert send_request(served_run, "/api/plan", Cookie=cookie.partition(";")[0])[0] == 200
    assert send_request(served_run, "/api/plan", Authorization=bearer(served_run))[0] == 200


def test_every_answer_has_a_strict_content_policy(served_run: ServedRun) -> None:
    for path, who in (("/", bearer(served_run)), ("/", ""), ("/nothing", bearer(served_run))):
        policy = send_request(served_run, path, Authorization=who)[2]["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy


def test_nothing_listens_beyond_loopback(served_run: ServedRun) -> None:
    port = f":{served_run.address.port:04X}"
    listening = [
        line.split()[1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        if Path(table).exists()
        for line in Path(table).read_text().splitlines()[1:]
        if line.split()[1].endswith(port) and line.split()[3] == LISTEN_STATE
    ]
    assert listening == [f"{LOOPBACK}{port}"]


def test_a_taken_port_is_reported_with_a_remedy(served_run: ServedRun) -> None:
    with (
        pytest.raises(InputError, match=r"cannot listen on port .* in use(.|\n)*--port 0"),
        serve(served_run.content, served_run.address.port),
    ):
        pytest.fail("two servers on one port")


def test_the_port_is_free_after_the_dashboard_stops(served_run: ServedRun) -> None:
    with serve(served_run.content, 0) as address:
        port = address.port
    with socket.socket() as again:
        again.bind(("127.0.0.1", port))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not JSON"),
        (b"[" * 50_000, "not JSON"),
        (b"[1]", "maps controls to numbers"),
        (b'{"__class__": 1}', 'no control "__class__"'),
        (b'{"processors": "1; DROP"}', "goes from"),
        (b'{"processors": true}', "goes from"),
        (b'{"processors": NaN}', "goes from"),
        (b'{"rate orders": 1e300}', "goes from"),
        (b'{"window o": -1}', "goes from"),
        (b" " * 70_000, "too long"),
    ],
)
def test_an_invalid_question_is_refused_with_a_reason(served_run: ServedRun, body: bytes, words: str) -> None:
    status, response, _ = send_request(served_run, "/api/what-if", "POST", body, Authorization=bearer(served_run))
    assert status == 422
    assert words in json.loads(response)["error"]


def test_a_higher_rate_costs_more_cpu_and_state(served_run: ServedRun) -> None:
    status, body, _ = send_request(
        served_run, "/api/what-if", "POST", b'{"rate orders": 40000}', Authorization=bearer(served_run)
    )
    assert status == 200
    answer = json.loads(body)
    assert answer["cpu_per_s"] > served_run.content.questions.base.chosen.cost.cpu_per_s
    assert answer["state_rows"] > served_run.content.questions.base.chosen.cost.state_rows
