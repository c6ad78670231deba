"""Who may talk to the dashboard: the loopback interface, its own name, and whoever has the token."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import Running
from watersmeet.dashboard.app import STATIC_FILES
from watersmeet.dashboard.serve import serve
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


def answered(
    served: Running, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, bytes, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", served.address.port)
    try:
        connection.request(
            method, path, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


def bearer(served: Running) -> str:
    return f"Bearer {served.address.token}"


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS"])
def test_every_route_without_the_token_is_refused(served: Running, path: str, method: str) -> None:
    assert answered(served, path, method)[0] == 403
    assert answered(served, f"{path}?token=wrong", method)[0] == 403
    assert answered(served, path, method, Authorization="Bearer wrong")[0] == 403
    assert answered(served, path, method, Cookie=f"watersmeet_{served.address.port}=wrong")[0] == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "127.0.0.1", "", "localhost:1"]
)
def test_a_foreign_host_header_is_refused_even_with_the_token(served: Running, host: str) -> None:
    named = host.format(port=served.address.port)
    assert answered(served, "/", Host=named, Authorization=bearer(served))[0] == 403
    assert answered(served, f"/?token={served.address.token}", Host=named)[0] == 403


def test_another_page_cannot_ask(served: Running) -> None:
    assert answered(served, "/api/plan", Origin="http://evil.example", Authorization=bearer(served))[0] == 403


def test_the_token_lets_in_as_address_cookie_or_bearer(served: Running) -> None:
    status, _, headers = answered(served, f"/?token={served.address.token}")
    assert status == 200
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert answered(served, "/api/plan", Cookie=cookie.partition(";")[0])[0] == 200
    assert answered(served, "/api/plan", Authorization=bearer(served))[0] == 200


def test_every_answer_has_a_strict_content_policy(served: Running) -> None:
    for path, who in (("/", bearer(served)), ("/", ""), ("/nothing", bearer(served))):
        policy = answered(served, path, Authorization=who)[2]["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy


def test_nothing_listens_beyond_loopback(served: Running) -> None:
    wanted = f":{served.address.port:04X}"
    listening = [
        line.split()[1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        if Path(table).exists()
        for line in Path(table).read_text().splitlines()[1:]
        if line.split()[1].endswith(wanted) and line.split()[3] == "0A"
    ]
    assert listening == [f"0100007F{wanted}"]


def test_a_port_that_is_taken_is_said_with_what_to_do(served: Running) -> None:
    with (
        pytest.raises(InputError, match=r"cannot listen on port .* in use(.|\n)*--port 0"),
        serve(served.shown, served.address.port),
    ):
        pytest.fail("two servers on one port")


def test_the_port_is_free_again_once_the_dashboard_has_ended(served: Running) -> None:
    with serve(served.shown, 0) as address:
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
def test_a_question_that_is_none_is_refused_in_words(served: Running, body: bytes, words: str) -> None:
    status, said, _ = answered(served, "/api/what-if", "POST", body, Authorization=bearer(served))
    assert status == 422
    assert words in json.loads(said)["error"]


def test_an_answer_is_what_explain_says(served: Running) -> None:
    status, said, _ = answered(served, "/api/what-if", "POST", b'{"rate orders": 40000}', Authorization=bearer(served))
    assert status == 200
    answer = json.loads(said)
    assert answer["cpu_per_s"] > served.shown.questions.base.chosen.cost.cpu_per_s
    assert answer["state_rows"] > served.shown.questions.base.chosen.cost.state_rows
