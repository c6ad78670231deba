"""Golden plans: queries with declared statistics, and what the planner makes of them on a fixed machine profile.

A case is a TOML file in `plans`. The file with the same name and the suffix `.txt` holds its answer: the bound query,
the chosen plan and the text of `explain`. `make bless` writes all answers again; the diff shows what a change does to
plans.

| key of a case | meaning |
| --- | --- |
| `query` | text of the query |
| `streams.NAME` | statistics of a stream: the options of `wm.stats` |
| `relations.NAME` | the same for a static table, and its `columns` with their Arrow types |
| `plan` | a pinned plan, in the form of `Plan.to_dict` |
| `budget`, `shed` | options of `wm.Budget`; true, or options of `wm.SheddingPolicy` |
| `engine`, `buckets` | options of `wm.explain` |
"""

from __future__ import annotations

import json
import os
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import watersmeet as wm
from watersmeet.algebra.query import BoundQuery, BoundSource
from watersmeet.algebra.render import format_expression, format_type
from watersmeet.algebra.windows import FOREVER_US, format_sql_duration
from watersmeet.planner.spark_forecast import DEFAULT_HEAP_BYTES, SparkMachine

FOLDER = Path(__file__).parent / "plans"
PROFILE = Path(__file__).parent / "profile.json"

KEYS = frozenset({"query", "streams", "relations", "plan", "budget", "shed", "engine", "buckets"})


def list_cases() -> list[str]:
    """Return the names of all cases."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def answer_path(name: str) -> Path:
    """Return the path of a case's golden answer."""
    return FOLDER / f"{name}.txt"


@contextmanager
def use_golden_profile() -> Iterator[None]:
    """Use the golden profile, as if calibration had saved it on this machine."""
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {"XDG_CONFIG_HOME": folder}):
        saved = Path(folder) / "watersmeet" / "profile.json"
        saved.parent.mkdir()
        saved.write_bytes(PROFILE.read_bytes())
        yield


def explain_case(name: str, plan: wm.Plan | None = None) -> wm.Explanation:
    """Explain a case; `plan` replaces the plan that the case pins."""
    case = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    assert set(case) <= KEYS, f"{name}.toml has unknown keys: {sorted(set(case) - KEYS)}"
    streams: dict[str, Any] = {stream: wm.stats(**options) for stream, options in case["streams"].items()}
    declared: dict[str, wm.StreamStats] = {}
    for relation, options in case.get("relations", {}).items():
        columns = [(column, getattr(pa, kind)()) for column, kind in options.pop("columns").items()]
        streams[relation] = wm.relation(pa.schema(columns).empty_table())
        declared[relation] = wm.stats(**options)
    shed = case.get("shed", False)
    # The forecast of a micro-batch depends on the cores and the heap of the session.
    machine = patch("watersmeet.runtime.job._describe_machine", return_value=SparkMachine(2, DEFAULT_HEAP_BYTES))
    with use_golden_profile(), machine:
        return wm.explain(
            case["query"],
            streams,
            plan=case.get("plan") if plan is None else plan,
            budget=wm.Budget(**case["budget"]) if "budget" in case else None,
            shed=wm.SheddingPolicy(**shed) if isinstance(shed, dict) else shed,
            stats=declared or None,
            engine=case.get("engine", "embedded"),
            buckets=case.get("buckets"),
        )


def format_answer(explanation: wm.Explanation) -> str:
    """Return the text of a golden answer."""
    sections = {
        "bound query": _bound_lines(explanation.bound),
        "plan": _plan_lines(explanation.plan),
        "explain": str(explanation).splitlines(),
    }
    return "\n".join(f"== {title} ==\n" + "".join(f"{line}\n" for line in lines) for title, lines in sections.items())


def _bound_lines(bound: BoundQuery) -> Iterator[str]:
    for source in bound.sources:
        yield _format_source(source)
    for output in bound.outputs:
        yield f"output {output.name}: {format_expression(output.expr)}"
    if bound.where is not None:
        yield f"where: {format_expression(bound.where)}"
    for expr in bound.group_by:
        yield f"group by: {format_expression(expr)}"
    if bound.having is not None:
        yield f"having: {format_expression(bound.having)}"
    if bound.query.every_us is not None:
        yield f"every: {format_sql_duration(bound.query.every_us)}"
    for i in bound.stream_inputs:
        for j in bound.stream_inputs:
            later_by_us = bound.bounds.later_by_us[i][j]
            if i != j and later_by_us < FOREVER_US:
                first, second = bound.sources[i].alias, bound.sources[j].alias
                yield f"time bound: {second} at most {format_sql_duration(later_by_us)} after {first}"


def _format_source(source: BoundSource) -> str:
    columns = ", ".join(f"{field.name} {format_type(field.type)}" for field in source.fields)
    window = "" if source.window is None else f" [{source.window}]"
    return f"{source.schema.noun} {source.alias}: {source.schema.name}{window} ({columns})"


def _plan_lines(plan: wm.Plan) -> Iterator[str]:
    """Yield the algorithm, and each option that differs from its default."""
    default = wm.Plan().to_dict()
    for option, value in plan.to_dict().items():
        if option == "algorithm" or value != default[option]:
            yield f"{option}: {json.dumps(_round_numbers(value))}"


def _round_numbers(value: object) -> object:
    """Round shares to six digits: the last bits depend on the machine's mathematical library."""
    if isinstance(value, dict):
        return {key: _round_numbers(each) for key, each in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


def write_answers() -> None:
    """Write the golden answer of every case, and remove answers without a case."""
    names = list_cases()
    for stale in {path.stem for path in FOLDER.glob("*.txt")} - set(names):
        answer_path(stale).unlink()
    for name in names:
        answer_path(name).write_text(format_answer(explain_case(name)), encoding="utf-8")


if __name__ == "__main__":
    write_answers()
