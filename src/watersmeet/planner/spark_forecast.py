"""Forecast of a steady micro-batch on Spark: its wall time by part, the sustained rate, and the memory of each process.

Tasks run in parallel on the cores of the session; the driver's work between them is serial. So a batch of n rows takes
`driver + n · s` seconds, where s is the CPU time per row divided by the cores that share it. The driver's part does not
depend on the rows. Matches per row are those of the current rate.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.planner.cost_of_spark import MICRO_BATCHES, Shuffle
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.plan_cost import PlanCost
from watersmeet.planner.workload import Workload
from watersmeet.units import format_bytes, format_count, format_duration, format_rate

#: Trigger interval of a forecast for which none is given.
DEFAULT_TRIGGER_S = 10.0

#: Java heap of a session that `wm.session()` starts.
DEFAULT_HEAP_BYTES = 4 * 2.0**30

#: Memory of processes without rows, measured after some batches, in bytes.
WORKER_BASE_BYTES = 95e6
DRIVER_BASE_BYTES = 150e6

#: Memory of a worker per byte of a batch that it holds: packets, decoded columns, runs, results and copies to write.
WORKER_BYTES_PER_BATCH_BYTE = 20.0

#: Seconds from the start of a session to the first result: Java, the workers, and compiled kernels.
START_S = 20.0

#: Parts of a micro-batch by the operators of the cost model. All other operators belong to the join.
_PARTS = {"spark: pack": "scan and pack", "spark: shuffle": "shuffle", "spark: state": "state", "spark: emit": "emit"}


@dataclass(frozen=True, slots=True)
class SparkMachine:
    """Cores of a Spark session, and the bytes of its Java heap."""

    cores: int
    heap_bytes: float


@dataclass(frozen=True, slots=True)
class SparkCorrection:
    """Measured divided by predicted time of driver and tasks, in so many recorded runs on this machine."""

    driver: float = 1.0
    tasks: float = 1.0
    runs: int = 0

    def __str__(self) -> str:
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        return f"corrected by {runs} on this machine: driver ×{self.driver:.2f}, tasks ×{self.tasks:.2f}"


NO_CORRECTION = SparkCorrection()


@dataclass(frozen=True, slots=True)
class BatchPart:
    """Wall time of one part of a micro-batch, and the rows that it handles."""

    name: str
    wall_s: float
    rows: float


@dataclass(frozen=True, slots=True)
class SparkForecast:
    """Predicted figures of a steady micro-batch, and of the processes that run it."""

    trigger_s: float
    cores: int
    rows_in: float
    parts: tuple[BatchPart, ...]
    fixed_s: float
    shuffled_rows: float
    driver_bytes: float
    jvm_bytes: float
    worker_bytes: float
    start_s: float = START_S
    correction: SparkCorrection = NO_CORRECTION

    @property
    def micro_batch_s(self) -> float:
        """Wall time of a steady micro-batch."""
        return sum(part.wall_s for part in self.parts)

    @property
    def seconds_per_row(self) -> float:
        """Wall time that each row adds to a batch."""
        return (self.micro_batch_s - self.fixed_s) / self.rows_in if self.rows_in else 0.0

    @property
    def sustained_rows_per_s(self) -> float:
        """Rate at which a batch takes exactly the trigger interval.

        >>> parts = (BatchPart("driver", 1.0, 0), BatchPart("join", 1.0, 1000))
        >>> about = SparkForecast(10, 2, 1000, parts, 1.0, 1000, 0, 0, 0)
        >>> about.sustained_rows_per_s, about.shortest_trigger_s
        (900.0, 1.1111111111111112)
        """
        spare_s = max(0.0, self.trigger_s - self.fixed_s)
        return spare_s / self.seconds_per_row / self.trigger_s if self.seconds_per_row else 0.0

    @property
    def shortest_trigger_s(self) -> float | None:
        """Shortest trigger interval that keeps up with the current rate; None if none does."""
        free = 1 - self.seconds_per_row * self.rows_in / self.trigger_s
        return self.fixed_s / free if free > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast for JSON."""
        return {
            "trigger_s": self.trigger_s,
            "cores": self.cores,
            "rows_in": self.rows_in,
            "micro_batch_s": self.micro_batch_s,
            "sustained_rows_per_s": self.sustained_rows_per_s,
            "shortest_trigger_s": self.shortest_trigger_s,
            "shuffled_rows": self.shuffled_rows,
            "parts": [{"name": part.name, "wall_s": part.wall_s, "rows": part.rows} for part in self.parts],
            "memory": {
                "driver_bytes": self.driver_bytes,
                "jvm_bytes": self.jvm_bytes,
                "worker_bytes": self.worker_bytes,
            },
            "start_s": self.start_s,
            "correction": asdict(self.correction),
        }

    def describe(self) -> list[str]:
        """Describe the forecast in lines of text."""
        shortest = self.shortest_trigger_s
        return [
            f"micro-batch every {format_duration(self.trigger_s)}: {format_duration(self.micro_batch_s)}"
            f" for {format_count(self.rows_in)} rows",
            *([str(self.correction)] if self.correction.runs else []),
            *(
                f"  {part.name:<32} {format_duration(part.wall_s):>19}  {format_count(part.rows):>13} rows"
                for part in self.parts
            ),
            f"sustains {format_rate(self.sustained_rows_per_s)};"
            + (
                " no trigger interval keeps up"
                if shortest is None
                else f" the shortest trigger interval that keeps up is {format_duration(shortest)}"
            ),
            f"memory: driver {format_bytes(self.driver_bytes)}, Java at most {format_bytes(self.jvm_bytes)},"
            f" each worker {format_bytes(self.worker_bytes)}; Spark starts in about {format_duration(self.start_s)}",
        ]


def forecast_micro_batch(
    config: JoinConfig,
    workload: Workload,
    profile: Profile,
    cost: PlanCost,
    shuffle: Shuffle | None,
    trigger_s: float,
    machine: SparkMachine,
    correction: SparkCorrection = NO_CORRECTION,
) -> SparkForecast:
    """Forecast a steady micro-batch of a plan whose cost includes Spark's operators."""
    streams = config.stream_inputs
    buckets = shuffle.buckets if shuffle is not None else machine.cores
    parallel = {"scan and pack": min(machine.cores, len(streams))}
    bucket_cores = max(1, min(machine.cores, buckets))
    seconds = {"scan and pack": 0.0, "shuffle": 0.0, "state": 0.0, "join": 0.0, "emit": 0.0}
    rows_in = sum(workload.inputs[i].rows_per_s.value for i in streams) * trigger_s
    rows = {"join": rows_in, "emit": cost.rows_out_per_s * trigger_s}
    for operator in cost.operators:
        if operator.name == MICRO_BATCHES:
            continue
        part = _PARTS.get(operator.name, "join")
        seconds[part] += operator.cpu_per_s * trigger_s
        if part != "join":
            rows[part] = operator.rows_per_s * trigger_s
    fixed_s = profile.spark.driver_s * correction.driver
    parts = [BatchPart("driver", fixed_s, 0.0)]
    parts += [
        BatchPart(name, correction.tasks * spent / max(1, parallel.get(name, bucket_cores)), rows.get(name, 0.0))
        for name, spent in seconds.items()
    ]
    copies = {} if shuffle is None else shuffle.copies
    batch_bytes = trigger_s * sum(
        workload.inputs[i].kept_per_s.value * copies.get(i, 1) * workload.inputs[i].row_bytes.value for i in streams
    )
    state_bytes = cost.state_bytes / bucket_cores
    return SparkForecast(
        trigger_s=trigger_s,
        cores=machine.cores,
        rows_in=rows_in,
        parts=tuple(parts),
        fixed_s=fixed_s,
        shuffled_rows=rows.get("shuffle", 0.0),
        driver_bytes=DRIVER_BASE_BYTES,
        jvm_bytes=machine.heap_bytes,
        worker_bytes=WORKER_BASE_BYTES + WORKER_BYTES_PER_BATCH_BYTE * batch_bytes / bucket_cores + state_bytes,
        correction=correction,
    )
