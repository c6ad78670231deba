"""Drop boxes: which rows of a stream are kept.

The choice depends on a row's values alone, so every plan, batch split, host and replay keeps the same rows. A row is
kept if `xxhash64(column, …, stream seed)`, as a signed number, is below a limit that rises with the share to keep. So a
larger share keeps every row that a smaller one keeps. The stream seed combines the stream's name and the plan's seed,
so streams with equal rows are sampled independently. Rows that are equal in every column are kept or shed together.

References: Ayad, Naughton, section 5, observation 3: it is enough to drop at the sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.errors import PlanError, listing
from watersmeet.kernels.hashing import hash_int64s, xxhash64_definition
from watersmeet.operators.row_identity import hash_rows


class RowSampler(Protocol):
    """Keeps some rows of a stream, by their values alone."""

    @property
    def is_dropping(self) -> bool: ...

    def select_kept(self, table: pa.Table) -> NDArray[np.bool_]: ...


@dataclass(frozen=True, slots=True)
class DropBox:
    """A sampler that keeps the share `keep` of a stream's rows.

    >>> box = DropBox("bids", keep=0.5)
    >>> int(box.select_kept(pa.table({"id": range(10_000)})).sum())
    5043
    """

    stream: str
    keep: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.keep <= 1:  # also refuses NaN
            raise PlanError(f'the share of "{self.stream}" to keep is {self.keep}; it goes from 0 to 1')
        if not -(2**63) <= self.seed < 2**63:
            raise PlanError(f"a seed is a 64-bit number, got {self.seed}")

    @property
    def is_dropping(self) -> bool:
        """Whether any rows are shed."""
        return self.keep < 1

    @property
    def stream_seed(self) -> int:
        """Value that is hashed after the row's own columns."""
        return xxhash64_definition(self.stream.encode(), self.seed)

    @property
    def hash_limit(self) -> int:
        """Rows with a hash below this limit are kept. Meaningless if nothing is dropped."""
        return int(Fraction(self.keep) * 2**64) - 2**63 if self.is_dropping else 2**63 - 1

    def select_kept(self, table: pa.Table) -> NDArray[np.bool_]:
        """Return a mask of the rows that are kept."""
        if not self.is_dropping:
            return np.ones(table.num_rows, np.bool_)
        hashes = hash_rows(table)
        hash_int64s(hashes, np.full(hashes.size, self.stream_seed, np.int64), np.ones(hashes.size, np.bool_))
        return self.select_kept_hashes(hashes)

    def select_kept_hashes(self, hashes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return a mask of the rows that are kept, given their hashes."""
        return hashes < self.hash_limit if self.is_dropping else np.ones(hashes.size, np.bool_)


@dataclass(frozen=True, slots=True)
class RoleShares:
    """Kept shares of one stream: of the rows that probe, and of the rows that its window holds."""

    probe: float = 1.0
    window: float = 1.0

    @property
    def keep_all_rows(self) -> bool:
        return self.probe == self.window == 1

    @property
    def kept_share(self) -> float:
        """Share of the rows that are kept in at least one role. The draws of the two roles are independent."""
        return self.probe + self.window - self.probe * self.window


PROBE, WINDOW = "probe", "window"


def make_role_drop_box(stream: str, role: str, shares: RoleShares, seed: int) -> DropBox:
    """Return the drop box of a stream's rows in one role.

    Seeds differ by role, so a row's two draws are independent.
    """
    return DropBox(stream, shares.probe if role == PROBE else shares.window, xxhash64_definition(role.encode(), seed))


@dataclass(frozen=True, slots=True)
class RoleSampler:
    """Keeps the rows of a stream that are kept in at least one role. A row draws once for each of its two roles.

    With `counts_all`, the rows of a ROWS window are counted whether they are kept or not, so none is removed before
    the operator. The ledger still counts rows without a role as shed.
    """

    probe: DropBox
    window: DropBox
    counts_all: bool = False

    @property
    def is_dropping(self) -> bool:
        return self.probe.is_dropping and self.window.is_dropping

    def select_kept(self, table: pa.Table) -> NDArray[np.bool_]:
        return self.probe.select_kept(table) | self.window.select_kept(table)


def build_role_samplers(bound: BoundQuery, plan: Plan) -> tuple[RoleSampler, ...]:
    """Return the samplers of the two streams of a plan with an allocation; refuse queries that cannot have one.

    They are by input. A plan without an allocation has none.
    """
    if not plan.is_allocated:
        return ()
    names = [source.schema.name for source in bound.sources]
    if len(names) != 2 or len(set(names)) != 2 or not all(source.is_stream for source in bound.sources):
        raise PlanError(
            "probes and windows are divided between two different streams",
            hint="other queries drop rows by wm.plan(drop=...)",
        )
    streams = {source.alias: source.schema.name for source in bound.sources}
    probe, window = (
        {_resolve_stream(bound, streams, given): share for given, share in shares}
        for shares in (plan.probe, plan.window)
    )
    samplers = []
    for source in bound.sources:
        shares = RoleShares(probe.get(source.schema.name, 1.0), window.get(source.schema.name, 1.0))
        probing, stored = (
            make_role_drop_box(source.schema.name, role, shares, plan.drop_seed) for role in (PROBE, WINDOW)
        )
        counted = source.window is not None and source.window.row_limit is not None
        samplers.append(RoleSampler(probing, stored, counted))
    return tuple(samplers)


def build_samplers(bound: BoundQuery, plan: Plan) -> dict[str, DropBox | RoleSampler]:
    """Return what samples each stream, by its name: a drop box, or the roles of an allocation."""
    roles = build_role_samplers(bound, plan)
    by_role = {source.schema.name: each for source, each in zip(bound.sources, roles, strict=False)}
    return {**build_drop_boxes(bound, plan), **by_role}


def build_drop_boxes(bound: BoundQuery, plan: Plan) -> dict[str, DropBox]:
    """Return the drop boxes of a plan by stream name; a stream without a box keeps all its rows.

    A plan names a stream by its own name or by an alias. A stream that a query reads twice is one stream, so it has one
    drop box.
    """
    streams = {source.alias: source.schema.name for source in bound.sources if source.is_stream}
    found: dict[str, DropBox] = {}
    for given, share in plan.drop:
        name = _resolve_stream(bound, streams, given)
        box = DropBox(name, 1 - share, plan.drop_seed)
        if found.setdefault(name, box) != box:
            raise PlanError(
                f'two shares to drop of stream "{name}"',
                hint="rows are dropped from a stream before any alias reads them",
            )
    return {name: box for name, box in found.items() if box.is_dropping}


def compute_keep_shares(bound: BoundQuery, plan: Plan) -> Mapping[str, float]:
    """Return the kept share of each stream, by alias."""
    boxes = build_drop_boxes(bound, plan)
    return {each.alias: boxes[each.schema.name].keep if each.schema.name in boxes else 1.0 for each in bound.sources}


def fixed_drop_rates_error() -> PlanError:
    """Return the error for a plan that would change the drop rates of a running aggregation."""
    return PlanError(
        "an aggregation cannot change its drop rates while it runs", hint="start a new run with other drop rates"
    )


def _resolve_stream(bound: BoundQuery, streams: Mapping[str, str], given: str) -> str:
    if given in streams:
        return streams[given]
    if given in streams.values():
        return given
    if any(given in (source.alias, source.schema.name) for source in bound.sources):
        raise PlanError(f'"{given}" is a relation; rows are dropped from streams only')
    raise PlanError(
        f'the plan drops from "{given}", which is not a source of the query', hint=f"streams: {listing(list(streams))}"
    )
