"""The upgrade promise: a checkpoint that an earlier version wrote is resumed, and gives the rows of one run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from watersmeet import framing

from .stored_checkpoints import BATCHES, COMMITTED, FOLDER, QUERIES, ListSink, run_query

READABLE = [f"format-{version}" for version in framing.READABLE_VERSIONS]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("version", READABLE)
def test_a_stored_checkpoint_is_resumed(version: str, query: str, tmp_path: Path) -> None:
    whole, resumed = ListSink(), ListSink()
    run_query(query, tmp_path / "whole", whole, range(BATCHES))
    shutil.copytree(FOLDER / version / "embedded" / query, tmp_path / "resumed" / "ckpt")
    run_query(query, tmp_path / "resumed", resumed, range(COMMITTED, BATCHES))
    assert resumed.batches == {batch: rows for batch, rows in whole.batches.items() if batch >= COMMITTED}
    assert any(resumed.batches.values())


def test_every_readable_format_has_stored_checkpoints() -> None:
    assert [path.name for path in sorted(FOLDER.iterdir())] == READABLE
