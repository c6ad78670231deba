"""Sources: every way to pass rows gives the same batches."""

from __future__ import annotations

import datetime as dt
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from watersmeet.algebra.arrow_types import TEXT_VIEWS
from watersmeet.errors import InputError
from watersmeet.sources.declarations import relation, stream

TABLE = pa.table({"k": pa.array([1, 2, 3]), "ts": pa.array([10, 20, 30], pa.timestamp("us"))})


def _rows(source: Any) -> list[dict[str, Any]]:
    return [row for batch in stream(source, time="ts").batches() for row in batch.to_pylist()]


def test_a_table_is_one_batch_any_number_of_times() -> None:
    declared = stream(TABLE, time="ts")
    assert [batch.num_rows for batch in declared.batches()] == [3]
    assert [batch.num_rows for batch in declared.batches()] == [3]
    assert declared.schema == TABLE.schema


@pytest.mark.parametrize(
    "source",
    [TABLE.to_batches()[0], TABLE.to_pandas(), pl.from_arrow(TABLE), pl.DataFrame(pl.from_arrow(TABLE)).lazy()],
    ids=["batch", "pandas", "polars", "lazy"],
)
def test_a_frame_of_any_library_is_one_batch(source: Any) -> None:
    assert _rows(source) == TABLE.to_pylist()
    assert stream(source, time="ts").schema.names == ["k", "ts"]


def test_each_item_of_an_iterable_is_one_batch() -> None:
    declared = stream([TABLE.slice(0, 2), TABLE.slice(2).to_batches()[0]], time="ts")
    assert [batch.num_rows for batch in declared.batches()] == [2, 1]
    assert [batch.num_rows for batch in declared.batches()] == [2, 1]


def test_the_schema_of_a_generator_is_known_without_losing_a_batch() -> None:
    taken: list[int] = []

    def generate() -> Iterator[pa.Table]:
        for number in range(3):
            taken.append(number)
            yield TABLE.slice(number, 1)

    declared = stream(generate(), time="ts")
    assert declared.schema.names == ["k", "ts"]
    assert taken == [0]
    assert [batch.column("k")[0].as_py() for batch in declared.batches()] == [1, 2, 3]


def test_a_generator_can_be_consumed_once() -> None:
    declared = stream((batch for batch in [TABLE]), time="ts")
    assert len(list(declared.batches())) == 1
    with pytest.raises(InputError, match="already consumed"):
        declared.batches()


def test_a_record_batch_reader_gives_its_batches() -> None:
    reader = pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(max_chunksize=1))
    declared = stream(reader, time="ts")
    assert [batch.num_rows for batch in declared.batches()] == [1, 1, 1]
    with pytest.raises(InputError, match="already consumed"):
        declared.batches()


def test_nullability_may_differ_between_batches() -> None:
    strict = pa.table(TABLE.columns, schema=pa.schema([field.with_nullable(False) for field in TABLE.schema]))
    assert [batch.schema for batch in stream([TABLE, strict], time="ts").batches()] == [TABLE.schema] * 2


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (
            pa.table({"k": ["x"], "ts": pa.array([1], pa.timestamp("us"))}),
            'batch 2 differs from the first: column "k" is string, was int64',
        ),
        (TABLE.drop_columns(["k"]), "batch 2 differs from the first: it lacks k"),
        (TABLE.append_column("more", pa.array([1, 2, 3])), "it adds more"),
        (TABLE.select(["ts", "k"]), "in another order"),
    ],
)
def test_batches_that_differ_are_refused_with_number_and_difference(second: pa.Table, words: str) -> None:
    with pytest.raises(InputError, match=words):
        list(stream([TABLE, second], time="ts").batches())


@pytest.mark.parametrize("source", [42, None, b"bytes", {"a": 1}, object()])
def test_a_value_that_is_no_source_is_refused_with_the_list_of_sources(source: Any) -> None:
    with pytest.raises(InputError, match="is not a source of rows") as caught:
        stream(source, time="ts")
    assert "a source is a pyarrow Table" in str(caught.value)


def test_an_iterable_of_something_else_is_refused_with_its_number() -> None:
    with pytest.raises(InputError, match="batch 1 is a int"):
        _ = stream(cast(Any, [1, 2]), time="ts").schema


def test_a_source_without_a_batch_has_no_columns() -> None:
    with pytest.raises(InputError, match="without any batch"):
        _ = stream([], time="ts").schema


def test_a_missing_time_column_is_named_with_the_existing_columns() -> None:
    with pytest.raises(InputError, match='stream "bids" has no time column "when"') as caught:
        stream(TABLE, time="when").to_schema("bids")
    assert "existing columns: k, ts" in str(caught.value)


def test_a_time_column_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(InputError, match='time column "k" of stream "bids" is double'):
        stream(pa.table({"k": [1.5]}), time="k").to_schema("bids")


def test_a_relation_needs_no_time() -> None:
    declared = relation(TABLE).to_schema("items")
    assert declared.fields.names == ["k", "ts"]


def test_mixed_values_in_a_pandas_column_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="column k"):
        stream(pd.DataFrame({"k": [1, "x"]}), time="k")


def test_a_named_pandas_index_is_a_column() -> None:
    assert _rows(TABLE.to_pandas().set_index("ts")) == [{"ts": row["ts"], "k": row["k"]} for row in TABLE.to_pylist()]
    assert stream(TABLE.to_pandas().set_index("ts", drop=False), time="ts").schema.names == ["k", "ts"]


def test_none_among_the_batches_is_refused_and_does_not_end_the_stream() -> None:
    with pytest.raises(InputError, match="batch 2 is a NoneType"):
        list(stream(cast(Any, [TABLE, None, TABLE]), time="ts").batches())


@pytest.mark.skipif(not TEXT_VIEWS, reason="pyarrow has views since version 16")
def test_string_views_become_strings() -> None:
    tags = pa.array([{"tags": ["x"]}], pa.struct([("tags", pa.list_(pa.string_view()))]))
    viewed = pa.table({"s": pa.array(["a"], pa.string_view()), "nested": tags, "ts": [1]})
    schema = stream(viewed, time="ts").schema
    assert schema.field("s").type == pa.string()
    assert schema.field("nested").type == pa.struct([("tags", pa.list_(pa.string()))])


def test_a_lazy_frame_over_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="LazyFrame"):
        stream(pl.scan_parquet(tmp_path / "nothing.parquet"), time="ts")


class _SparkFrame:
    """A Spark DataFrame as far as a declaration looks at one."""

    def __init__(self, *, streaming: bool) -> None:
        self.isStreaming = streaming
        self.schema = "schema"
        self.columns = TABLE.column_names
        self.sparkSession = self

    def toArrow(self) -> pa.Table:  # noqa: N802  # Spark's own name
        return TABLE

    def createDataFrame(self, rows: list[Any], schema: str) -> _SparkFrame:  # noqa: N802  # Spark's own name
        return self


_SparkFrame.__name__ = "DataFrame"
_SparkFrame.__module__ = "pyspark.sql.dataframe"


def test_a_spark_frame_is_kept_as_it_is_and_can_be_collected() -> None:
    frame: Any = _SparkFrame(streaming=False)
    declared = stream(frame, time="ts")
    assert declared.spark_frame is frame
    assert declared.schema == TABLE.schema
    assert [batch.to_pylist() for batch in declared.batches()] == [TABLE.to_pylist()]


def test_a_streaming_spark_frame_cannot_be_collected() -> None:
    with pytest.raises(InputError, match="never ends"):
        stream(cast(Any, _SparkFrame(streaming=True)), time="ts").batches()


def test_files_of_every_format_give_the_same_rows(tmp_path: Path) -> None:
    texts = {
        "a.csv": "k,ts\n1,1970-01-01 00:00:00.000010\n2,1970-01-01 00:00:00.000020\n3,1970-01-01 00:00:00.000030\n",
        "a.tsv": "k\tts\n1\t1970-01-01 00:00:00.000010\n2\t1970-01-01 00:00:00.000020\n3\t1970-01-01 00:00:00.000030\n",
        "a.jsonl": "".join(f'{{"k": {k}, "ts": "1970-01-01 00:00:00.0000{k}0"}}\n' for k in (1, 2, 3)),
        "a.json": "[" + ",".join(f'{{"k": {k}, "ts": "1970-01-01 00:00:00.0000{k}0"}}' for k in (1, 2, 3)) + "]",
    }
    paths = [tmp_path / name for name in texts]
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        paths.append(tmp_path / f"{name}.gz")
    pq.write_table(TABLE, tmp_path / "a.parquet")
    for path in [*paths, tmp_path / "a.parquet"]:
        table = next(stream(path, time="ts").batches())
        assert (
            table.set_column(1, "ts", table.column("ts").cast(pa.timestamp("us"))).to_pylist() == TABLE.to_pylist()
        ), path


def test_a_directory_is_one_batch_of_its_files_by_name(tmp_path: Path) -> None:
    for name, start in [("b.parquet", 1), ("a.parquet", 0), ("_SUCCESS", 0), (".hidden.parquet", 0)]:
        pq.write_table(TABLE.slice(start, 1), tmp_path / name)
    (tmp_path / "notes.txt").write_text("not data")
    batches = list(stream(str(tmp_path), time="ts").batches())
    assert [batch.column("k").to_pylist() for batch in batches] == [[1, 2]]


def test_a_column_that_is_empty_in_one_file_takes_its_type_from_the_other(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,ts\n,5\n")
    (tmp_path / "b.csv").write_text("k,ts\n7,6\n")
    assert [row["k"] for row in _rows(tmp_path)] == [None, 7]


def test_times_written_with_a_zone_become_instants(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"ts": "1970-01-01T01:00:00.5+01:00"}\n')
    assert _rows(tmp_path / "a.jsonl") == [{"ts": dt.datetime(1970, 1, 1, 0, 0, 0, 500_000, tzinfo=dt.UTC)}]


def test_types_are_inferred_from_the_entire_file(tmp_path: Path) -> None:
    rows = 200_000
    pacsv.write_csv(pa.table({"ts": range(rows), "k": ["1"] * (rows - 1) + ["x"]}), tmp_path / "a.csv")
    assert stream(tmp_path / "a.csv", time="ts").schema.field("k").type == pa.string()


def test_a_csv_with_only_a_header_is_an_empty_stream(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,ts\n")
    declared = stream(tmp_path / "a.csv", time="ts")
    assert [batch.num_rows for batch in declared.batches()] == [0]
    assert declared.to_schema("a").time == "ts"
