"""The routes of the dashboard: the page and its files, the plan, the figures, and answers to what-if questions."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from watersmeet.dashboard.guard import Guard
from watersmeet.dashboard.live import Live
from watersmeet.dashboard.view import finite, view
from watersmeet.dashboard.whatif import WhatIf
from watersmeet.errors import InputError, WatersmeetError

#: A question is a few numbers; anything longer is not one.
_LONGEST_QUESTION = 64 * 1024

#: The page's own files, by what they are.
FILES = {
    "dashboard.js": "text/javascript",
    "figures.js": "text/javascript",
    "plan.js": "text/javascript",
    "questions.js": "text/javascript",
    "dashboard.css": "text/css",
}


@dataclass(frozen=True)
class Shown:
    """What a dashboard is about: a query that can be asked about, and a run of it that may be under way."""

    title: str
    questions: WhatIf
    live: Live = field(default_factory=Live)


def dashboard(shown: Shown, token: str, port: int) -> Guard:
    """The whole application behind its guard."""
    routes = [
        Route("/", lambda request: _file("index.html", "text/html")),
        Route("/plotly.js", lambda request: _plotly()),
        *(Route(f"/{name}", _serving(name, kind)) for name, kind in FILES.items()),
        Route("/api/plan", _planned(shown)),
        Route("/api/figures", _figures(shown)),
        Route("/api/what-if", _asked(shown), methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes), token, port)


def _serving(name: str, kind: str) -> Any:
    return lambda request: _file(name, kind)


def _file(name: str, kind: str) -> Response:
    content = resources.files("watersmeet.dashboard").joinpath("static", name).read_bytes()
    return Response(content, media_type=kind)


def _plotly() -> Response:
    """The chart library out of its own installed package."""
    content = resources.files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    return Response(content, media_type="text/javascript")


def _planned(shown: Shown) -> Any:
    def answer(request: Request) -> Response:
        controls = [control.to_dict() for control in shown.questions.controls]
        return JSONResponse({"title": shown.title, "controls": finite(controls), **view(shown.questions.base)})

    return answer


def _figures(shown: Shown) -> Any:
    def answer(request: Request) -> Response:
        since = request.query_params.get("since", "0")
        return JSONResponse(finite(shown.live.since(int(since) if since.isdecimal() and len(since) < 16 else 0)))

    return answer


def _asked(shown: Shown) -> Any:
    async def answer(request: Request) -> Response:
        try:
            asked = _question(await _body(request))
            about = await run_in_threadpool(shown.questions.answer, asked)
        except WatersmeetError as error:
            return JSONResponse({"error": str(error)}, 422)
        return JSONResponse({**view(about), "same_plan": about.plan == shown.questions.unmoved.plan})

    return answer


async def _body(request: Request) -> bytes:
    """The request's body, which is refused before it is read to the end when it is too long."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _LONGEST_QUESTION:
            raise InputError("the question is too long")
    return body


def _question(body: bytes) -> dict[str, object]:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError("the question is not JSON") from error
    if not isinstance(asked, dict):
        raise InputError("a question maps controls to numbers")
    return asked
