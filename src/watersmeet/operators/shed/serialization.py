"""Serialization of the estimates of a query that sheds rows, as parts that are saved one by one.

The first part has the instants of the last evaluation, and changes with every batch. The others are the panes of the
combinations, which do not change: the end of a combination tells whether it has expired since. The groups shown last
are not saved, because the combinations determine them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from watersmeet.errors import InputError, InternalError
from watersmeet.operators.aggregate.serialization import AggregatePart
from watersmeet.operators.aggregate.window_rows import AggregatePane
from watersmeet.operators.protocol import SavedPart
from watersmeet.operators.shed.aggregation import ShedAggregation, ShedConfig
from watersmeet.operators.window_join.serialization import to_ipc_bytes

INSTANTS, COMBINATIONS = "instants", "combinations"
#: Columns that are saved with the combinations.
_BEGINS, _ENDS = "\0begins", "\0ends"


def split_estimates(aggregation: ShedAggregation) -> list[AggregatePart]:
    """Return the instants first, then the panes, oldest first."""
    parts = [AggregatePart(0, INSTANTS, aggregation, 0, lambda: _serialize_instants(aggregation))]
    starts = np.concatenate([[0], np.cumsum([pane.rows for pane in aggregation.panes], dtype=np.int64)])
    if starts[-1] != aggregation.rows:
        raise InternalError("the panes of the combinations do not cover them")
    for pane, start in zip(aggregation.panes, starts.tolist(), strict=False):
        parts.append(_build_pane_part(aggregation, pane, start))
    return parts


def restore_estimates(config: ShedConfig, saved: Sequence[SavedPart]) -> ShedAggregation:
    """Restore the state from `split_estimates`."""
    if not saved or saved[0].kind != INSTANTS:
        raise InputError(
            "the checkpoint was written by an earlier version, which saved estimates in another format",
            hint="start again with a new checkpoint and a new output directory",
        )
    instants = json.loads(bytes(saved[0].blob))
    found = ShedAggregation(config, evaluated_us=instants["evaluated_us"])
    tables = [_read_live_combinations(part, instants["shown_at_us"]) for part in saved[1:]]
    if tables:
        combinations = pa.concat_tables(tables)
        found.begins_us, found.ends_us = (combinations[name].to_numpy() for name in (_BEGINS, _ENDS))
        found.combinations = combinations.drop_columns([_BEGINS, _ENDS])
        found.panes = [AggregatePane(table.num_rows) for table in tables]
    found.show_again(instants["shown_at_us"])
    return found


def _serialize_instants(aggregation: ShedAggregation) -> bytes:
    return json.dumps({"evaluated_us": aggregation.evaluated_us, "shown_at_us": aggregation.shown_at_us}).encode()


def _build_pane_part(aggregation: ShedAggregation, pane: AggregatePane, start: int) -> AggregatePart:
    return AggregatePart(
        0, COMBINATIONS, pane, pane.rows, lambda: _serialize_combinations(aggregation, start, pane.rows)
    )


def _serialize_combinations(aggregation: ShedAggregation, start: int, rows: int) -> bytes:
    if aggregation.combinations is None:
        raise InternalError("there are no combinations to save")
    table = aggregation.combinations.slice(start, rows)
    for name, times in ((_BEGINS, aggregation.begins_us), (_ENDS, aggregation.ends_us)):
        table = table.append_column(name, pa.array(times[start : start + rows], pa.int64()))
    return to_ipc_bytes(table)


def _read_live_combinations(part: SavedPart, evicted_us: int) -> pa.Table:
    """Return the combinations that had not expired at the last eviction, which precedes every evaluation."""
    table = pa.ipc.open_stream(pa.py_buffer(part.blob)).read_all()
    return table.filter(pa.array(table[_ENDS].to_numpy() >= evicted_us))
