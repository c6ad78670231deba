"""Aggregation over the pairs that an allocation keeps: both directions together, each pair weighted by its own chance.

A pair is found by its later row, which probes the other stream's window. So its chance to be kept is the probe share of
the later row's stream times the window share of the earlier row's stream. A row draws independently for its two roles.
Two pairs therefore depend on each other only if they share a row in the same role, which is in the same direction;
across directions they are independent. With one sampled input per role, whose shares differ by direction, the estimates
and variances of `operators.shedding_estimates` apply as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.query import BoundSource
from watersmeet.operators.shed.aggregation import ROW, TIME, ShedAggregation
from watersmeet.operators.shed.estimates import SampledInput

#: Column of a combination: the number of the input whose row probes. No column of a caller's is called so.
DIRECTION = "\0direction"

#: Tells rows of the two streams apart that are equal in every column: any number that no two identities differ by.
_SECOND_STREAM = 0x5BD1E9955BD1E995

PROBE, WINDOW = "probe", "window"


@dataclass(frozen=True, slots=True)
class RoleShares:
    """Shares of the rows of one stream: those that probe, and those that are held in its window."""

    probe: float = 1.0
    window: float = 1.0

    @property
    def keep_all_rows(self) -> bool:
        return self.probe == self.window == 1


@dataclass
class AllocatedAggregation(ShedAggregation):
    """A shedding aggregation over two inputs whose shares go by direction."""

    shares: tuple[RoleShares, RoleShares] = (RoleShares(), RoleShares())

    def _inputs(self, table: pa.Table) -> Iterator[SampledInput]:
        first_probes = table[DIRECTION].to_numpy() == 0
        first, second = (table[f"{ROW} {source.alias}"].to_numpy() for source in self.config.bound.sources)
        second = second ^ _SECOND_STREAM
        a, b = self.shares
        yield _sample_role(PROBE, first_probes, (a.probe, first), (b.probe, second))
        yield _sample_role(WINDOW, first_probes, (b.window, second), (a.window, first))


def declare_hidden_fields(source: BoundSource) -> BoundSource:
    """Declare the columns that `with_hidden` appends to the rows of a stream."""
    hidden = [pa.field(name, pa.int64()) for name in (ROW, TIME)]
    return replace(source, schema=replace(source.schema, fields=pa.schema([*source.schema.fields, *hidden])))


def mark_direction(batch: pa.RecordBatch, prober: int) -> pa.RecordBatch:
    """Append the number of the probing input to combinations."""
    return batch.append_column(DIRECTION, pa.array(np.full(batch.num_rows, prober, np.int8)))


def _sample_role(
    role: str,
    first_probes: NDArray[np.bool_],
    one: tuple[float, NDArray[np.int64]],
    other: tuple[float, NDArray[np.int64]],
) -> SampledInput:
    """The rows that have a role, with their shares: `one` where the first input probes, else `other`."""
    return SampledInput(role, np.where(first_probes, one[0], other[0]), np.where(first_probes, one[1], other[1]))
