"""Machine profile: seconds per operation of the engine's kernels, as measured by calibration. A value with a JSON form.

The papers' own weights are profiles too, so that the same code computes their figures and our plans.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from watersmeet.errors import InputError, listing
from watersmeet.planner.models.checks import check_not_negative, is_number
from watersmeet.planner.models.early_aggregation import EarlyWeights
from watersmeet.planner.models.expression_costs import ExpressionCosts
from watersmeet.planner.models.kang import PAPER_WEIGHTS, StructureWeights, Weights
from watersmeet.planner.models.tran import AggregationWeights


@dataclass(frozen=True, slots=True)
class Structure:
    """Seconds per lookup, per row compared in a lookup, and per row touched by an insertion or an expiration."""

    compare_s: float = 0.0
    update_s: float = 0.0
    lookup_s: float = 0.0

    def __post_init__(self) -> None:
        for each in fields(self):
            check_not_negative(getattr(self, each.name), f"the weight {each.name} of a structure")

    @property
    def weights(self) -> StructureWeights:
        """The weights P and I of the model of Kang et al."""
        return StructureWeights(self.compare_s, self.update_s)


@dataclass(frozen=True, slots=True)
class SparkCosts:
    """CPU seconds per row that Spark packs, shuffles, stores in its state store and emits, and per micro-batch.

    `driver_s` is the wall time of a micro-batch without rows: planning, logs, commits and the start of tasks. `assumed`
    marks the defaults: round numbers of the right size that were not measured.
    """

    pack_s: float = 2e-7
    shuffle_s: float = 1e-7
    state_s: float = 2e-7
    out_s: float = 5e-7
    batch_s: float = 0.5
    assumed: bool = True
    driver_s: float = 0.65

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.name != "assumed":
                check_not_negative(getattr(self, each.name), f"the weight {each.name} of Spark")
        if not isinstance(self.assumed, bool):
            raise InputError(f'"assumed" of Spark\'s weights must be true or false, got {self.assumed!r}')


@dataclass(frozen=True, slots=True)
class Profile:
    """Costs of operations on one machine.

    `unit` is "s", except for weights from a paper that names no unit. `source` names the origin of the weights.

    Index structures: `list`, `hash`, `btree`, `ttree`, and `runs`, the production structure.

    Around the kernels: `row_in_s` per ingested row, `count_s` in addition if a ROWS window counts it, `match_s` per
    match passed on, `row_out_s` per emitted row. Predicates: `select_s` per row and `check_s` per candidate that a
    predicate is evaluated on, and `expressions` by the kinds of nodes in a stream's own predicate. Batches: `batch_s`
    per batch, `probe_batch_s` per pane that a batch probes. `group_s` is the cost per group visited in an aggregation
    set.

    Nested loops: `loop_match_s` per row passed to the next loop, `layout_s` per new row laid out, `scan_s` per
    row whose times and conditions are tested, `loops_batch_s` per batch. `node_batch_s` is the cost of a batch at a
    node of a join tree. `early` holds the weights of an aggregation over a join.
    """

    name: str
    unit: str = "s"
    source: str = ""
    list: Structure = Structure()
    hash: Structure = Structure()
    btree: Structure = Structure()
    ttree: Structure = Structure()
    runs: Structure = Structure()
    row_in_s: float = 0.0
    match_s: float = 0.0
    row_out_s: float = 0.0
    select_s: float = 0.0
    group_s: float = 0.0
    batch_s: float = 0.0
    check_s: float = 0.0
    probe_batch_s: float = 0.0
    loop_match_s: float = 0.0
    layout_s: float = 0.0
    loops_batch_s: float = 0.0
    count_s: float = 0.0
    scan_s: float = 0.0
    node_batch_s: float = 0.0
    early: EarlyWeights = field(default_factory=EarlyWeights)
    spark: SparkCosts = SparkCosts()
    expressions: ExpressionCosts = ExpressionCosts()  # noqa: RUF009  # frozen

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("a profile needs a name")
        for name in SCALARS:
            check_not_negative(getattr(self, name), f"the weight {name} of a profile")

    def structure(self, kind: str) -> Structure:
        """Return the costs of one structure by name."""
        if kind not in STRUCTURES:
            raise InputError(f'a profile has no structure "{kind}"', hint=f"structures: {listing(STRUCTURES)}")
        found: Structure = getattr(self, kind)
        return found

    def kang(self, bucket_rows: float = PAPER_WEIGHTS.bucket_rows, node_rows: int = PAPER_WEIGHTS.node_rows) -> Weights:
        """Return the weights of the window join's cost model."""
        return Weights(
            self.list.weights, self.hash.weights, self.btree.weights, self.ttree.weights, bucket_rows, node_rows
        )

    def tran(self) -> AggregationWeights:
        """Return the weights of the aggregation join's cost model."""
        return AggregationWeights(
            self.list.compare_s, self.hash.compare_s, self.list.update_s, self.hash.update_s, self.group_s
        )

    def to_json(self) -> str:
        """Return the profile as JSON; `from_json` reads it back."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Profile:
        """Parse a profile. Missing weights are zero; unknown keys are refused.

        >>> Profile.from_json('{"name": "mine", "hash": {"compare_s": 2e-9}}').hash.compare_s
        2e-09

        """
        try:
            saved = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"a profile must be JSON: {error}") from error
        return cls(**_parse_values(saved))


SCALARS = (
    "row_in_s",
    "match_s",
    "row_out_s",
    "select_s",
    "group_s",
    "batch_s",
    "check_s",
    "probe_batch_s",
    "loop_match_s",
    "layout_s",
    "loops_batch_s",
    "count_s",
    "scan_s",
    "node_batch_s",
)
STRUCTURES = ("list", "hash", "btree", "ttree", "runs")
_TEXTS = ("name", "unit", "source")


def _parse_values(saved: object) -> dict[str, Any]:
    known = _require_object(saved, "a profile", (*_TEXTS, *STRUCTURES, *SCALARS, "early", "spark", "expressions"))
    values: dict[str, Any] = {}
    for key, value in known.items():
        if key in STRUCTURES:
            values[key] = Structure(
                **_require_object(value, f"the structure {key}", tuple(each.name for each in fields(Structure)))
            )
        elif key == "early":
            values[key] = EarlyWeights(
                **_require_object(
                    value, "the aggregation's part of a profile", tuple(each.name for each in fields(EarlyWeights))
                )
            )
        elif key == "spark":
            values[key] = SparkCosts(
                **_require_object(value, "Spark's part of a profile", tuple(each.name for each in fields(SparkCosts)))
            )
        elif key == "expressions":
            names = tuple(each.name for each in fields(ExpressionCosts))
            values[key] = ExpressionCosts(**_require_object(value, "the expressions' part of a profile", names))
        elif key in _TEXTS and not isinstance(value, str):
            raise InputError(f"the {key} of a profile must be text, got {value!r}")
        elif key in SCALARS and not is_number(value):
            raise InputError(f"the weight {key} of a profile must be a number, got {value!r}")
        else:
            values[key] = value
    if "name" not in values:
        raise InputError("a profile needs a name")
    return values


def _require_object(value: object, what: str, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{what} must be a JSON object, got {value!r}")
    if unknown := sorted(set(value) - set(keys)):
        raise InputError(f"{what} has no {listing(unknown)}", hint=f"it has: {listing(keys)}")
    return value


def _from_paper(weights: StructureWeights) -> Structure:
    return Structure(weights.probe_s, weights.update_s)


KANG = Profile(
    "kang-2003",
    unit="the paper's own",
    list=_from_paper(PAPER_WEIGHTS.list),
    hash=_from_paper(PAPER_WEIGHTS.hash),
    btree=_from_paper(PAPER_WEIGHTS.btree),
    ttree=_from_paper(PAPER_WEIGHTS.ttree),
    source="Kang, Naughton, Viglas, eq. 7; bucket of 10 rows, node of 100",
)
COMPARISONS = Profile(
    "golab-2003",
    unit="comparisons",
    list=Structure(1.0),
    hash=Structure(1.0),
    btree=Structure(1.0),
    ttree=Structure(1.0),
    runs=Structure(1.0),
    source="Golab, Özsu, section 5.1: cost is comparisons; insertion and expiration do not count",
)
ONE_EACH = Profile(
    "tran-unit",
    unit="rows touched",
    list=Structure(1.0, 1.0),
    hash=Structure(1.0, 1.0),
    group_s=1.0,
    source="Tran, Lee, eqs. 5 to 12; their weights are tuned per experiment and not printed, here all are equal",
)
ROW_OF_EXAMPLE_1 = Profile(
    "ayad-example-1",
    row_in_s=0.0005,
    source="Ayad, Naughton, Example 1: every row that arrives at a join takes 0.5 ms",
)

PROFILES = {profile.name: profile for profile in (KANG, COMPARISONS, ONE_EACH, ROW_OF_EXAMPLE_1)}


def named_profile(name: str) -> Profile:
    """Return one of the papers' profiles.

    >>> named_profile("kang-2003").kang() == PAPER_WEIGHTS
    True

    """
    if name not in PROFILES:
        raise InputError(f'there is no profile "{name}"', hint=f"profiles: {listing(list(PROFILES))}")
    return PROFILES[name]
