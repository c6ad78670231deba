"""Two small streams in CSV files and a query over them."""

from __future__ import annotations

from pathlib import Path

import pytest

QUERY = "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("k,ts\n1,2024-01-01T00:00:00Z\n")
    (tmp_path / "query.sql").write_text(QUERY)
    return tmp_path
