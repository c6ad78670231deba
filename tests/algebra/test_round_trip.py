"""A query that is printed and parsed again is the same query."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings

from tests.algebra.random_queries import queries
from watersmeet.algebra.query import Query
from watersmeet.algebra.render import query_to_dict, query_to_mermaid
from watersmeet.sql.parsing import parse

RANDOM = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@RANDOM
@given(queries())
def test_every_query_is_what_its_text_parses_to(query: Query) -> None:
    assert parse(str(query)) == query


@settings(RANDOM, max_examples=100)
@given(queries())
def test_every_query_goes_through_json_unharmed(query: Query) -> None:
    assert json.loads(json.dumps(query_to_dict(query))) == query_to_dict(query)


@settings(RANDOM, max_examples=100)
@given(queries())
def test_no_name_or_value_breaks_out_of_a_mermaid_label(query: Query) -> None:
    first, *lines = query_to_mermaid(query).split("\n")
    assert first == "flowchart TD"
    for line in lines:
        if "-->" not in line:
            name, label = line.strip().split("[", 1)
            assert name.isalnum()
            assert label.startswith('"')
            assert label.endswith('"]')
            assert not set(label[1:-2]) & set('"<>[]{}|`\\')
