"""Search for a generated case that catches a mutant, starting at the seed that caught it before.

`catching_seeds.json` records which seed catches each mutant. A test tries that seed first, so a run takes seconds
instead of minutes. If it no longer catches the mutant, because a generator changed, the test searches all seeds
again. `make test-long` ignores the record. To write a new record, run with WATERSMEET_RECORD_SEEDS=1 and one test
worker.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.properties.mutants.mutant import Mutant
from tests.volume import VOLUME

_RECORD = Path(__file__).with_suffix(".json")
_SEEDS: dict[str, dict[str, int]] = json.loads(_RECORD.read_text())


def assert_caught(suite: str, mutant: Mutant, is_caught: Callable[[int], bool], max_seeds: int) -> None:
    """Fail if no generated case shows the mutant's mistake."""
    seed = next((seed for seed in _order_seeds(suite, mutant, max_seeds) if is_caught(seed)), None)
    assert seed is not None, f"nothing catches: {mutant.mistake}"
    if os.environ.get("WATERSMEET_RECORD_SEEDS") == "1":
        _SEEDS.setdefault(suite, {})[mutant.mistake] = seed
        _RECORD.write_text(json.dumps(_SEEDS, indent=1, ensure_ascii=False) + "\n")


def seeds_for_unmodified_engine(suite: str, max_seeds: int) -> list[int]:
    """Return the seeds that the unmodified engine has to pass.

    These are the seeds that catch mutants; a long run uses all seeds.
    """
    return list(range(max_seeds)) if VOLUME > 1 else sorted(set(_SEEDS.get(suite, {}).values()))


def _order_seeds(suite: str, mutant: Mutant, max_seeds: int) -> Iterator[int]:
    recorded = None if VOLUME > 1 else _SEEDS.get(suite, {}).get(mutant.mistake)
    if recorded is not None:
        yield recorded
    yield from (seed for seed in range(max_seeds) if seed != recorded)
