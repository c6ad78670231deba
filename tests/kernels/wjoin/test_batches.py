"""Any split into calls, in any order of arrival, finds the same results as one call over all rows."""

from __future__ import annotations

import random

import pytest

from tests.kernels.wjoin.cases import ALGORITHMS, Algorithm, Row, WindowJoinCase, expected_matches, random_case

Ids = dict[int, tuple[int, Row]]


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "in any order"])
def test_every_split_into_calls_finds_the_same_combinations(algorithm: Algorithm, in_order: bool) -> None:
    for seed in range(300):
        case = random_case(seed)
        draw = random.Random(seed)
        rows = _number_rows(case)
        assert _run_batches(algorithm, case, rows, _batches(rows, draw, in_order), draw) == _run_at_once(case, rows), (
            f"seed {seed}: {case}"
        )


def _number_rows(case: WindowJoinCase) -> Ids:
    """Return every row of the case, old or new, under its own number."""
    streams = [sorted([*old, *new]) for old, new in zip(case.old, case.new, strict=True)]
    return dict(enumerate((stream, row) for stream, rows in enumerate(streams) for row in rows))


def _batches(rows: Ids, draw: random.Random, in_order: bool) -> list[list[int]]:
    ids = sorted(rows, key=lambda each: (rows[each][1][0], draw.random()) if in_order else (0, draw.random()))
    cuts = sorted(draw.randint(0, len(ids)) for _ in range(draw.randint(0, 4)))
    return [ids[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(ids)], strict=True)]


def _run_at_once(case: WindowJoinCase, rows: Ids) -> list[tuple[int, ...]]:
    everything, ids = _build_case(case, rows, [], list(rows))
    return sorted(tuple(ids[s][row] for s, row in enumerate(result)) for result in expected_matches(everything))


def _run_batches(
    algorithm: Algorithm, case: WindowJoinCase, rows: Ids, batches: list[list[int]], draw: random.Random
) -> list[tuple[int, ...]]:
    """Return the results of one call per batch, with the rows held from before as the old ones."""
    held: list[int] = []
    results = []
    for number, batch in enumerate(batches):
        call, ids = _build_case(case, rows, held, batch)
        results += [
            tuple(ids[s][row] for s, row in enumerate(result))
            for result in zip(*algorithm(call).rows.tolist(), strict=True)
        ]
        future = [each for later in batches[number + 1 :] for each in later]
        held = [each for each in [*held, *batch] if draw.random() < 0.3 or _can_matter(case, rows, each, future)]
    return sorted(results)


def _build_case(
    case: WindowJoinCase, rows: Ids, old: list[int], new: list[int]
) -> tuple[WindowJoinCase, list[list[int]]]:
    """Return the call, and the row numbers of each stream's rows in it."""
    n = len(case.new)
    olds, news = (
        [sorted((rows[each][1], each) for each in ids if rows[each][0] == s) for s in range(n)] for ids in (old, new)
    )
    old_rows, new_rows = ([[row for row, _ in stream] for stream in part] for part in (olds, news))
    ids = [[each for _, each in [*before, *fresh]] for before, fresh in zip(olds, news, strict=True)]
    return WindowJoinCase(old_rows, new_rows, case.window_us, case.reach_us, case.buckets, case.clean_up_every), ids


def _can_matter(case: WindowJoinCase, rows: Ids, each: int, future: list[int]) -> bool:
    """Return whether a future row of another stream is in reach."""
    stream, (time, _) = rows[each]
    return any(
        rows[other][0] != stream
        and abs(rows[other][1][0] - time) <= min(case.window_us, case.reach_us[stream], case.reach_us[rows[other][0]])
        for other in future
    )
