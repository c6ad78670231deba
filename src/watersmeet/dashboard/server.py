"""Server of the dashboard: on the loopback interface, in its own thread, until it is stopped.

Its routes are the page and its files, the plan, the metrics, and answers to what-if questions.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from watersmeet.dashboard.guard import AccessGuard, ConnectionLimits, bounded_protocol
from watersmeet.dashboard.view import LiveRun, build_view, replace_non_finite
from watersmeet.dashboard.whatif import WhatIf
from watersmeet.errors import InputError, WatersmeetError
from watersmeet.runtime.background import BackgroundThread

#: A question is a few numbers, so it is short.
_MAX_QUESTION_BYTES = 64 * 1024

#: Files of the page, with their media types.
STATIC_FILES = {
    "dashboard.js": "text/javascript",
    "figures.js": "text/javascript",
    "plan.js": "text/javascript",
    "questions.js": "text/javascript",
    "dashboard.css": "text/css",
}
LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8470
DEFAULT_LIMITS = ConnectionLimits()


@dataclass(frozen=True)
class DashboardContent:
    """Content of a dashboard: a query with its what-if questions, and its run, if there is one."""

    title: str
    questions: WhatIf
    live: LiveRun = field(default_factory=LiveRun)


def create_app(content: DashboardContent, token: str, port: int) -> AccessGuard:
    """Create the application behind its access guard."""
    routes = [
        Route("/", lambda request: _file_response("index.html", "text/html")),
        Route("/plotly.js", lambda request: _plotly_response()),
        *(Route(f"/{name}", _serve_static(name, kind)) for name, kind in STATIC_FILES.items()),
        Route("/api/plan", _serve_plan(content)),
        Route("/api/figures", _serve_metrics(content)),
        Route("/api/what-if", _serve_what_if(content), methods=["POST"]),
    ]
    return AccessGuard(Starlette(routes=routes), token, port)


def _serve_static(name: str, kind: str) -> Any:
    return lambda request: _file_response(name, kind)


def _file_response(name: str, kind: str) -> Response:
    body = resources.files("watersmeet.dashboard").joinpath("static", name).read_bytes()
    return Response(body, media_type=kind)


def _plotly_response() -> Response:
    """Return the chart library from its installed package."""
    body = resources.files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    return Response(body, media_type="text/javascript")


def _serve_plan(content: DashboardContent) -> Any:
    def answer(request: Request) -> Response:
        controls = [control.to_dict() for control in content.questions.controls]
        return JSONResponse(
            {"title": content.title, "controls": replace_non_finite(controls), **build_view(content.questions.base)}
        )

    return answer


def _serve_metrics(content: DashboardContent) -> Any:
    def answer(request: Request) -> Response:
        since = request.query_params.get("since", "0")
        return JSONResponse(
            replace_non_finite(content.live.since(int(since) if since.isdecimal() and len(since) < 16 else 0))
        )

    return answer


def _serve_what_if(content: DashboardContent) -> Any:
    async def answer(request: Request) -> Response:
        try:
            question = _parse_question(await _read_body(request))
            explanation = await run_in_threadpool(content.questions.answer, question)
        except WatersmeetError as error:
            return JSONResponse({"error": str(error)}, 422)
        return JSONResponse(
            {**build_view(explanation), "same_plan": explanation.plan == content.questions.baseline.plan}
        )

    return answer


async def _read_body(request: Request) -> bytes:
    """Read the body of a request; refuse a long one before reading it to the end."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_QUESTION_BYTES:
            raise InputError("the question is too long")
    return body


def _parse_question(body: bytes) -> dict[str, object]:
    try:
        question = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError("the question is not JSON") from error
    if not isinstance(question, dict):
        raise InputError("a question maps controls to numbers")
    return question


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
