"""The slow, obviously right implementation of the semantics: it examines every combination of rows in plain Python.

It shares no code with the engine. Its result is the meaning of a query; the engine is tested against it.
"""

from tests.oracle.aggregate import Evaluation, batch_evaluations, evaluations, every_instants, groups_at
from tests.oracle.expressions import evaluate
from tests.oracle.join import join_rows
from tests.oracle.values import Instant, as_multiset, table_rows
from tests.oracle.watermark import Admission, Arrival, admit

__all__ = [
    "Admission",
    "Arrival",
    "Evaluation",
    "Instant",
    "admit",
    "as_multiset",
    "batch_evaluations",
    "evaluate",
    "evaluations",
    "every_instants",
    "groups_at",
    "join_rows",
    "table_rows",
]
