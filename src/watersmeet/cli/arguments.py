"""The query and the sources of a command, from its arguments and options.

The query is the name of a file that holds it, or its text. A stream or relation is declared by an option:
`NAME=PATH,time=COLUMN,unit=ms,lateness=5s,idle=1m`. Settings are parsed from the right, so a path may contain commas
and equals signs. A stream that Spark reads itself has a format instead of a path:
`NAME=format=kafka,subscribe=TOPIC,kafka.bootstrap.servers=HOST:PORT,value=json,schema=item:string;ts:timestamp,time=ts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import watersmeet as wm
from watersmeet.cli.jobfile import FORMAT_SETTINGS, STREAM_SETTINGS, JobFile
from watersmeet.errors import InputError, abbreviate
from watersmeet.files import find_similar_path, read_text_file
from watersmeet.runtime.batch_limit import check_max_batch
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.sources.directories import FileSource
from watersmeet.sources.feeds import SparkFeed
from watersmeet.sources.files import is_directory, refuse_missing
from watersmeet.sources.times import ArrivalClock

_STARTS_LIKE_SQL = re.compile(r"\s*(select|with)\b(?!\.)", re.IGNORECASE)
#: `SELECT x FROM y` has four words. A file name of as many words still ends with a suffix.
_LEAST_WORDS = 4
_SUFFIXES = (".sql", ".txt")
_SETTING_PATTERN = re.compile(r"(\w+)=(.*)", re.DOTALL)
#: Opens a streaming DataFrame from the settings of a stream: `format`, `options`, `schema` and `value`.
SparkReader = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class QueryText:
    """Text of a query, and the title under which views show it."""

    title: str
    text: str


def read_query(argument: str) -> QueryText:
    """Return the query of an existing file, or the argument itself if it looks like SQL."""
    path = Path(argument)
    if not _is_present(path) and looks_like_sql(argument):
        return QueryText(abbreviate(" ".join(argument.split()), 60), argument)
    try:
        return QueryText(path.name, read_text_file(path, "query file"))
    except InputError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            error.hint = _suggest(path)
        raise


def looks_like_sql(argument: str) -> bool:
    """Return whether an argument is a query rather than the name of a file.

    >>> [looks_like_sql(text) for text in ("SELECT a.k FROM a", "SELEC k FROM a", "select.sql", "my own old query.sql")]
    [True, True, False, False]
    """
    if _STARTS_LIKE_SQL.match(argument):
        return True
    return len(argument.split()) >= _LEAST_WORDS and not argument.endswith(_SUFFIXES)


def _is_present(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # longer than any name, or with a zero byte in it
        return False


def _suggest(path: Path) -> str:
    """Name a similar file in the same directory, and the other way to pass a query."""
    inline = 'To pass the query itself, write watersmeet run "SELECT ..." --stream ...'
    if not _is_present(path.parent):
        return f'there is no directory "{abbreviate(str(path.parent), 200)}". {inline}'
    similar = find_similar_path(path)
    return inline if similar is None else f"did you mean {similar}? {inline}"


@dataclass(frozen=True)
class PlanningOptions:
    """Options of every function that runs a query: the plan, the budget, and what may be shed or is declared."""

    plan: wm.Plan | None = None
    budget: wm.Budget | None = None
    shed: bool | wm.SheddingPolicy = False
    stats: Mapping[str, wm.StreamStats] = field(default_factory=dict)

    def override(self, job: JobFile) -> PlanningOptions:
        """Return these options; the job file has those that are missing."""
        return PlanningOptions(
            self.plan or job.plan, self.budget or job.budget, self.shed or job.shed, {**job.stats, **self.stats}
        )


def parse_policy(least: Iterable[str], weights: Iterable[str], *, shed: bool) -> bool | wm.SheddingPolicy:
    """Return whether rows may be shed, or the policy that the options describe."""
    policy = wm.SheddingPolicy(_parse_numbers(least, "--least"), _parse_numbers(weights, "--weight"))
    if policy == wm.SheddingPolicy():
        return shed
    if not shed:
        raise InputError("--least and --weight say how to shed rows, which nothing allows", hint="add --shed")
    return policy


def _parse_numbers(texts: Iterable[str], option: str) -> dict[str, float]:
    """Parse options of the form NAME=NUMBER.

    >>> _parse_numbers(["a=100", "b = 2.5"], "--least")
    {'a': 100.0, 'b': 2.5}
    """
    found: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.partition("=")
        try:
            found[name.strip()] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name.strip():
            raise InputError(f'{option} "{text[:60]}" is not NAME=NUMBER', hint=f"write {option} orders=100")
    return found


def parse_max_batch(text: str | None) -> int | str | None:
    """Return the rows of a batch as a number, or "auto".

    >>> parse_max_batch("50000"), parse_max_batch("auto"), parse_max_batch(None)
    (50000, 'auto', None)
    """
    max_batch = int(text) if text is not None and text.isdecimal() and len(text) < 16 else text
    check_max_batch(max_batch)
    return max_batch


class ReadMode(StrEnum):
    """How the files of a stream are read: all existing files, or each as it appears, in this process or by Spark."""

    WHOLE = "whole"
    FILE_BY_FILE = "file by file"
    ON_SPARK = "on Spark"


def declare_sources(
    streams: Iterable[str],
    relations: Iterable[str],
    job: JobFile | None = None,
    *,
    reading: ReadMode = ReadMode.WHOLE,
    spark: SparkReader | None = None,
) -> dict[str, Stream | Relation]:
    """Return all sources by name. An option overrides the job file; a name declared twice is refused.

    `spark` opens streams that only Spark can read. It is None if the query does not run on Spark.
    """
    declared: dict[str, Stream | Relation] = {}
    for text in streams:
        _add_source(declared, *declare_stream(text, reading=reading, spark=spark))
    for text in relations:
        _add_source(declared, *declare_relation(text))
    if job is None:
        return declared
    in_file = {
        name: _build_stream(name, each, reading, spark) for name, each in job.streams.items() if name not in declared
    }
    return {
        **in_file,
        **{name: wm.relation(each["path"]) for name, each in job.relations.items() if name not in declared},
        **declared,
    }


def declare_stream(
    text: str, *, reading: ReadMode = ReadMode.WHOLE, spark: SparkReader | None = None
) -> tuple[str, Stream]:
    name, _, rest = text.partition("=")
    if rest.startswith("format="):
        return name.strip(), _build_stream(name.strip(), parse_format_settings(name, rest), reading, spark)
    name, path, settings = split_option(text, "--stream", STREAM_SETTINGS)
    if "time" not in settings:
        raise InputError(
            f'stream "{name}" has no time column',
            hint=f"name its time column: --stream {name}=PATH,time=COLUMN",
        )
    return name, open_file_stream(path, settings, reading=reading)


def _build_stream(name: str, settings: Mapping[str, Any], reading: ReadMode, spark: SparkReader | None) -> Stream:
    if "format" not in settings:
        return open_file_stream(settings["path"], settings, reading=reading)
    if "time" not in settings:
        raise InputError(f'stream "{name}" has no time column', hint="name its time column: time=COLUMN")
    if spark is None:
        raise InputError(
            f'only Spark can read stream "{name}", because its format is "{settings["format"]}"',
            hint="use `watersmeet run --engine spark`; for explain, declare its statistics with --stats",
        )
    settings = {**settings, "name": name}
    declared = wm.stream(spark(settings), **_stream_arguments(settings))
    if settings["format"] == "kafka" and isinstance(declared.feed, SparkFeed):
        declared.feed.read_limited = partial(_read_limited_kafka, spark, settings)
    return declared


def _read_limited_kafka(spark: SparkReader, settings: Mapping[str, Any], rows: int) -> Any:
    """Read a Kafka stream with at most so many messages in a micro-batch. A limit of the user's own stays."""
    return spark({**settings, "options": {"maxOffsetsPerTrigger": str(rows), **settings["options"]}})


def parse_format_settings(name: str, text: str) -> dict[str, Any]:
    """Parse the settings of a stream that Spark reads.

    A setting that Watersmeet does not know is an option of the source. The value of an option may contain commas.

    >>> parse_format_settings("a", "format=kafka,subscribe=x,y,schema=k:long;ts:timestamp,time=ts")["options"]
    {'subscribe': 'x,y'}
    """
    values: dict[str, str] = {}
    last = ""
    for piece in text.split(","):
        key, equals, value = piece.partition("=")
        if equals and key.strip() in values:
            raise InputError(f'"{name}" has {key.strip()} twice')
        if equals:
            last = key.strip()
            values[last] = value
        else:
            values[last] += f",{piece}"
    ours = {key: values.pop(key) for key in (*FORMAT_SETTINGS, *STREAM_SETTINGS) if key in values and key != "options"}
    return {**ours, "options": values, "schema": _parse_schema(name, ours.get("schema", ""))}


def _parse_schema(name: str, text: str) -> dict[str, str]:
    pairs = [piece.partition(":") for piece in text.split(";") if piece.strip()]
    if any(not colon for _, colon, _ in pairs):
        raise InputError(
            f'the schema of "{name}" is not a list of columns with their types',
            hint="write schema=item:string;ts:timestamp",
        )
    return {column.strip(): kind.strip() for column, _, kind in pairs}


def _stream_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "time": wm.ARRIVAL if settings["time"] == wm.ARRIVAL.value else settings["time"],
        "unit": settings.get("unit"),
        "lateness": settings.get("lateness", 0),
        "idle": settings.get("idle"),
    }


def open_file_stream(path: str, settings: Mapping[str, Any], *, reading: ReadMode = ReadMode.WHOLE) -> Stream:
    """Declare a stream over the existing files at a path, and also over later files if it is read file by file."""
    arguments = _stream_arguments(settings)
    if reading is not ReadMode.FILE_BY_FILE:
        return wm.stream(path, **arguments, follow=reading is ReadMode.ON_SPARK and is_directory(Path(path)))
    refuse_missing(Path(path), hint="create the directory first; it may be empty")
    declared = wm.stream([], **arguments)  # `wm.stream` checks the settings
    if declared.stamped:
        return replace(declared, feed=FileSource(Path(path), None, clock=ArrivalClock()))
    return replace(declared, feed=FileSource(Path(path), declared.time))


def declare_relation(text: str) -> tuple[str, Relation]:
    name, path, _ = split_option(text, "--relation", ())
    return name, wm.relation(path)


def split_option(text: str, option: str, known: Sequence[str]) -> tuple[str, str, dict[str, str]]:
    """Split an option into its name, path and settings.

    >>> split_option("a=data/x=1,y.csv,time=ts,lateness=5s", "--stream", ("time", "lateness"))
    ('a', 'data/x=1,y.csv', {'time': 'ts', 'lateness': '5s'})
    """
    name, equals, rest = text.partition("=")
    if not equals or not name.strip():
        raise InputError(
            f'{option} "{text[:80]}" does not name its source', hint=f"write {option} {_option_template(known)}"
        )
    path, settings = _split_settings(rest, known, name)
    if not path:
        raise InputError(f'{option} "{name}" has no path', hint=f"write {option} {_option_template(known)}")
    _refuse_unknown_setting(path, name, known)
    return name.strip(), path, settings


def _split_settings(rest: str, known: Sequence[str], name: str) -> tuple[str, dict[str, str]]:
    settings: dict[str, str] = {}
    path, comma, last = rest.rpartition(",")
    while comma and (setting := _SETTING_PATTERN.fullmatch(last)) and setting[1] in known:
        if setting[1] in settings:
            raise InputError(f'"{name}" has {setting[1]} twice')
        settings = {setting[1]: setting[2], **settings}
        rest = path
        path, comma, last = rest.rpartition(",")
    return rest, settings


def _refuse_unknown_setting(path: str, name: str, known: Sequence[str]) -> None:
    """Refuse a missing path that ends like a setting: the setting is misspelled."""
    setting = _SETTING_PATTERN.fullmatch(path.rpartition(",")[2])
    if "," in path and setting and not _exists(path):
        existing = f"existing settings: {', '.join(known)}" if known else "a relation has none"
        raise InputError(f'"{name}" has an unknown setting "{setting[1][:40]}"', hint=existing)


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def _option_template(known: Sequence[str]) -> str:
    return "NAME=PATH" + ",time=COLUMN" * ("time" in known)


def _add_source(declared: dict[str, Stream | Relation], name: str, source: Stream | Relation) -> None:
    if name in declared:
        raise InputError(f'source "{name}" is declared twice')
    declared[name] = source
