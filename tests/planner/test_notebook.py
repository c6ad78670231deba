"""Notebook output: it shows the important facts and escapes names."""

from __future__ import annotations

from xml.etree import ElementTree

import watersmeet as wm

NASTY = '<script>alert("1")</script>'
QUOTED = '"' + NASTY.replace('"', '""') + '"'


def _render_html(value: object) -> str:
    html: str = value._repr_html_()  # type: ignore[attr-defined]
    ElementTree.fromstring(f"<all>{html}</all>")  # well formed
    assert "<script" not in html
    return html


def test_an_explanation_shows_verdict_costs_streams_and_the_plans_that_lost() -> None:
    stats = wm.stats(rate=100, distinct={"k": 50})
    explanation = wm.explain(
        "SELECT a.k FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k", {"a": stats, "b": stats}
    )
    html = _render_html(explanation)
    for words in ("it keeps up", "ingest a", "100 (declared)", "plans that lost", "RANGE 1 SECOND"):
        assert words in html


def test_names_are_text_in_every_display() -> None:
    query = wm.sql(
        f"SELECT a.k FROM {QUOTED} [RANGE 1 SECOND] AS a, b [RANGE 1 SECOND] AS {QUOTED} WHERE a.k = {QUOTED}.k"
    )
    explanation = wm.explain(query, {NASTY: wm.stats(rate=1), "b": wm.stats(rate=1)}, plan=wm.plan("runs"))
    for value in (query, explanation, explanation.plan, wm.plan("eager-hash", indexes={NASTY: "hash(5)"})):
        assert "&lt;script&gt;" in _render_html(value)
