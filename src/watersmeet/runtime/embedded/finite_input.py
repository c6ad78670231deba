"""Finite input in pieces: the whole input is known, so it is cut by event time into batches of moderate size.

A long run then shows its progress, and needs memory for its windows, not for all its matches at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext

import pyarrow as pa

from watersmeet.metrics import BatchMetrics, ignore_metrics, show_notebook_bar
from watersmeet.runtime.embedded.run import EmbeddedRun, collect_with_metrics, run_batch_with_metrics
from watersmeet.sources.declarations import BATCH_ROWS, Stream, read_all_rows, split_tables_by_time
from watersmeet.sources.feeds import PathFeed, SparkFeed, TableFeed


def read_input_streams(run: EmbeddedRun) -> dict[str, pa.Table]:
    """Read all rows of the streams that the query joins."""
    tables = {name: read_all_rows(source) for name, source in _list_input_streams(run).items()}
    run.check_units(tables)
    return tables


def run_in_pieces(
    run: EmbeddedRun, tables: Mapping[str, pa.Table], batch_rows: int = BATCH_ROWS
) -> Iterator[tuple[list[pa.RecordBatch], BatchMetrics]]:
    """Run the query over these rows of its streams; yield the results and the metrics of every piece."""
    for number, (piece, is_last) in enumerate(split_input(run, tables, batch_rows)):
        yield run_batch_with_metrics(run, number, piece, last=is_last)


def split_input(
    run: EmbeddedRun, tables: Mapping[str, pa.Table], batch_rows: int = BATCH_ROWS
) -> Iterator[tuple[dict[str, pa.Table], bool]]:
    """Split the input into pieces and mark the last one.

    If the result depends on where batches end, the whole input is one piece.
    """
    waiting: dict[str, pa.Table] | None = None
    pieces = (
        iter([dict(tables)])
        if run.evaluates_at_batch_ends
        else split_tables_by_time(tables, _list_input_streams(run), batch_rows)
    )
    for piece in pieces:
        if waiting is not None:
            yield waiting, False
        waiting = piece
    yield waiting or {}, True


#: A query over fewer rows ends before a progress bar could be read.
MIN_BAR_ROWS = 100_000
_MIN_PIECE_ROWS = 1 << 16
_BAR_STEPS = 50


def collect_with_bar(run: EmbeddedRun) -> pa.Table:
    """Return all results of a run in a notebook, and show a progress bar meanwhile."""
    if not all(isinstance(each.feed, TableFeed | PathFeed | SparkFeed) for each in _list_input_streams(run).values()):
        with show_notebook_bar(total_rows=None) as observe:  # the batches of an iterable decide which rows are late
            return collect_with_metrics(run, observe)
    tables = read_input_streams(run)
    rows = sum(table.num_rows for table in tables.values())
    batch_rows = min(BATCH_ROWS, max(_MIN_PIECE_ROWS, rows // _BAR_STEPS))
    results: list[pa.RecordBatch] = []
    with show_notebook_bar(rows) if rows >= MIN_BAR_ROWS else nullcontext(ignore_metrics) as observe:
        for batches, metrics in run_in_pieces(run, tables, batch_rows):
            results += batches
            observe(metrics)
    return run.to_table_with_ledger(results)


def _list_input_streams(run: EmbeddedRun) -> dict[str, Stream]:
    """Return the streams among the query's inputs by name."""
    names = {run.config.inputs[i].name for i in run.config.stream_inputs}
    return {name: source for name, source in run.sources.items() if isinstance(source, Stream) and name in names}
