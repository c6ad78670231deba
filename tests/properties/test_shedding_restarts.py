"""A shedding aggregation emits the same rows with and without restarts between batches."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from tests.properties.generators.shedding_cases import (
    emit_after_restarts,
    emit_over_directories,
    emit_uninterrupted,
    generate_shedding,
)
from tests.volume import scale_volume

from .engine import add_failure_note

CHUNKS = 3
SEEDS_PER_CHUNK = scale_volume(25)
FIRST_SEED = int(os.environ.get("WATERSMEET_SEED", "0"))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_restarts_at_random_batches_do_not_change_the_rows(chunk: int) -> None:
    first = FIRST_SEED + chunk * SEEDS_PER_CHUNK
    emitting = sum(check_restarts(seed) for seed in range(first, first + SEEDS_PER_CHUNK))
    assert emitting >= SEEDS_PER_CHUNK // 2, "too few of the cases emit rows"


def test_jobs_over_directories_restarted_at_random_batches_write_the_same_rows(tmp_path: Path) -> None:
    emitting = sum(
        check_directories(seed, tmp_path / str(seed)) for seed in range(FIRST_SEED, FIRST_SEED + SEEDS_PER_CHUNK)
    )
    assert emitting >= SEEDS_PER_CHUNK // 2, "too few of the cases emit rows"


def check_restarts(seed: int) -> bool:
    """Compare a restarted run with an uninterrupted one; return False if neither emits a row."""
    shedding = generate_shedding(seed)
    with add_failure_note(f"seed {seed}\n{shedding.case.text}"):
        wanted = emit_uninterrupted(shedding)
        assert emit_after_restarts(shedding, Random(seed)) == wanted
    return any(wanted) and not isinstance(wanted, str)


def check_directories(seed: int, path: Path) -> bool:
    """Compare jobs over directories with a run in memory; return False if neither emits a row."""
    shedding = generate_shedding(seed)
    with add_failure_note(f"seed {seed}\n{shedding.case.text}"):
        wanted = emit_uninterrupted(shedding)
        assert emit_over_directories(shedding, Random(seed), path) == wanted
    return any(wanted) and not isinstance(wanted, str)
