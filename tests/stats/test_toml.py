"""Statistics in files: read as declared, and refused with the file and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from watersmeet.errors import InputError
from watersmeet.stats.stream_stats import read_stats, stats

GOOD = """
[streams.bids]
rate = 5000
row_bytes = 48
[streams.bids.distinct]
auction = 100
[streams.bids.hot]
auction = 0.2

[streams."odd name"]
"""


def _write_file(folder: Path, text: str) -> Path:
    path = folder / "stats.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_declares_the_same_as_the_function(tmp_path: Path) -> None:
    assert read_stats(_write_file(tmp_path, GOOD)) == {
        "bids": stats(rate=5000, row_bytes=48, distinct={"auction": 100}, hot={"auction": 0.2}),
        "odd name": stats(),
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "declares no stream"),
        ("[streams]", "declares no stream"),
        ("[streams.bids", "is not TOML"),
        ("x = " + "[" * 100_000, "is not TOML"),
        ("x = " + "1" * 5000, "is not TOML"),
        ("streams = 3", "streams must be a section, got 3"),
        ("[[streams]]\nrate = 3", "streams must be a section"),
        ("[stream.bids]\nrate = 3", 'no setting "stream"\nexisting settings: streams'),
        ("[streams]\nbids = 7", "streams.bids must be a section, got 7"),
        (
            "[streams.bids]\nrat = 7",
            'streams.bids: there is no setting "rat"\nexisting settings: rate, distinct, row_bytes, hot',
        ),
        ("[streams.bids]\nrate = 0", "streams.bids: a rate of 0 rows per second means no stream\nleave the stream out"),
        ("[streams.bids]\nrate = nan", "streams.bids: rate must be"),
        ("[streams.bids]\nrate = inf", "streams.bids: rate must be"),
        ("[streams.bids]\nrate = '5'", "streams.bids: rate must be"),
        ("[streams.bids]\nrate = 2024-01-01", "streams.bids: rate must be"),
        ("[streams.bids]\ndistinct = 5", "streams.bids: distinct must map columns"),
        ("[streams.bids.distinct]\nauction = true", 'streams.bids: distinct of column "auction"'),
        ("[streams.bids.hot]\nauction = 2", "streams.bids: the share of the most frequent value"),
    ],
)
def test_a_mistake_is_refused_with_the_file_and_the_key(tmp_path: Path, text: str, complaint: str) -> None:
    path = _write_file(tmp_path, text)
    with pytest.raises(InputError) as refusal:
        read_stats(path)
    assert complaint in str(refusal.value)
    assert str(path) in str(refusal.value)


def test_a_missing_file_a_folder_and_a_binary_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_stats(tmp_path / "missing.toml")
    with pytest.raises(InputError, match="is a directory"):
        read_stats(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        read_stats(str(tmp_path / "binary.toml"))
