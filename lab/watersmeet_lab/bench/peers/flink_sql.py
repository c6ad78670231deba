"""A window join in Flink's SQL: a chain of interval joins, or of joins of tumbling windows, then their aggregates.

Flink's event times (`et`) are milliseconds and may bound one pair per join. So each join is bounded by its first pair
in event time, which lets Flink forget rows, and exactly in microseconds (`ts`) on all pairs.
"""

from __future__ import annotations

from watersmeet_lab.bench.joins import JoinAggregate, JoinStep, PairBound, PortableJoin, TumblingTile

_TILE_COLUMNS = ("window_start", "window_end")


def flink_select(join: PortableJoin) -> str:
    """The SELECT whose rows, in microseconds, are those of the join."""
    first, *others = join.steps()
    joins = "".join(
        f" JOIN {_source_sql(join, step)} AS {step.alias} ON {' AND '.join(_join_conditions(join, step))}"
        for step in others
    )
    text = f"FROM {_source_sql(join, first)} AS {first.alias}{joins}"
    text += f" WHERE {' AND '.join(first.where)}" if first.where else ""
    shown = [f"{expression} AS `{name}`" for expression, name in join.outputs]
    if not isinstance(join.windows, TumblingTile) or not join.aggregates:
        return f"SELECT {', '.join(shown)} {text}"
    end = f"MAX({first.alias}.ts) / {join.windows.length_us} * {join.windows.length_us} + {join.windows.length_us} AS as_of"
    groups = [*(f"{first.alias}.{name}" for name in _TILE_COLUMNS), *(expression for expression, _ in join.outputs)]
    return (
        f"SELECT {', '.join([end, *shown, *map(_aggregate_sql, join.aggregates)])} {text} GROUP BY {', '.join(groups)}"
    )


def _source_sql(join: PortableJoin, step: JoinStep) -> str:
    if isinstance(join.windows, TumblingTile):
        return f"TABLE(TUMBLE(TABLE `{step.stream}`, DESCRIPTOR(et), {_interval_sql(join.windows.length_us)}))"
    if join.band is None:
        return f"`{step.stream}`"
    return f"({_cells_sql(join, step)})"


def _cells_sql(join: PortableJoin, step: JoinStep) -> str:
    """Flink joins on equality only: a value meets those in its own cell of the band's width and in the two beside it."""
    assert join.band is not None
    column = next(
        text.partition(".")[2] for text in (join.band.one, join.band.other) if text.startswith(f"{step.alias}.")
    )
    cell = f"`{column}` / {join.band.width}"
    if step.alias == join.aliases[0]:
        return f"SELECT *, {cell} AS cell FROM `{step.stream}`"
    return f"SELECT s.*, cell FROM `{step.stream}` AS s CROSS JOIN UNNEST(ARRAY[{cell} - 1, {cell}, {cell} + 1]) AS beside (cell)"


def _join_conditions(join: PortableJoin, step: JoinStep) -> list[str]:
    first = join.aliases[0]
    equal = [f"{one} = {other}" for one, other in step.equal]
    if isinstance(join.windows, TumblingTile):
        equal += [f"{first}.{name} = {step.alias}.{name}" for name in _TILE_COLUMNS]
    if join.band is not None:
        equal += [f"{first}.cell = {step.alias}.cell", f"ABS({join.band.one} - {join.band.other}) < {join.band.width}"]
    return (
        equal
        + [_event_time_bound(each) for each in step.bounds[:1]]
        + [_microsecond_bound(each) for each in step.bounds]
        + list(step.where)
    )


def _event_time_bound(bound: PairBound) -> str:
    return f"{bound.other}.et BETWEEN {bound.one}.et + {_interval_sql(bound.low_us)} AND {bound.one}.et + {_interval_sql(bound.high_us)}"


def _microsecond_bound(bound: PairBound) -> str:
    return f"{bound.other}.ts BETWEEN {bound.one}.ts + {bound.low_us} AND {bound.one}.ts + {bound.high_us}"


def _interval_sql(length_us: int) -> str:
    """To the millisecond: rows are at most the rest of one further apart than their event times."""
    minutes, rest_ms = divmod(abs(length_us) // 1000, 60_000)
    hours, minutes = divmod(minutes, 60)
    sign = "-" if length_us < 0 else ""
    return f"INTERVAL '{sign}{hours // 24} {hours % 24:02d}:{minutes:02d}:{rest_ms // 1000:02d}.{rest_ms % 1000:03d}' DAY TO SECOND(3)"


def _aggregate_sql(each: JoinAggregate) -> str:
    """An AVG of whole numbers would be a whole number."""
    column = f"CAST({each.column} AS DOUBLE)" if each.function == "AVG" else each.column
    return f"{each.function}({column}) AS `{each.name}`"
