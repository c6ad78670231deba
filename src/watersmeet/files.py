"""Text files from outside: queries, job files, statistics, profiles.

A path can name anything: a pipe without a writer, an endless device, a file of many gigabytes. Only regular files of a
bounded size are read. TOML is checked before it is parsed, because Python's parser takes quadratic time over dotted
keys.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from watersmeet.errors import InputError, abbreviate

#: The longest query has 200,000 characters; a job file holds a query and little else.
MAX_TEXT_BYTES = 1_000_000
MAX_KEY_PARTS = 32
MAX_TOML_DEPTH = 64

#: Strings and comments of TOML, closed or not; the rest are keys, numbers and punctuation. An unclosed string matches
#: up to the end of the text, so that no text makes the scan start again.
_QUOTED = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"""|\Z)|' + r"'''.*?(?:'''|\Z)|" + r'"(?:\\.|[^"\\\n])*"?|' + r"'[^'\n]*'?|" + r"#[^\n]*",
    re.DOTALL,
)
_BETWEEN_KEYS = re.compile(r"[\n=,\[\]{}]")


def read_text_file(path: Path, what: str, *, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Return the text of a regular file in UTF-8.

    `what` names the file's purpose in errors: "query file", "job file". A missing file is an `InputError` like every
    other problem; its cause is the `FileNotFoundError`.
    """
    label = f'{what} "{abbreviate(str(path), 200)}"'
    try:
        content = _read_regular_file(path, label, max_bytes)
    except OSError as error:
        raise InputError(f"{label} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a zero byte in the path
        raise InputError(f"{label} cannot be read: {error}") from error
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{label} is not UTF-8 text") from error


def find_similar_path(path: Path) -> Path | None:
    """Return the path in the same directory whose name is most similar to that of a missing one; None without one."""
    try:
        names = sorted(each.name for each in path.parent.iterdir() if not each.name.startswith("."))
    except OSError:
        return None
    similar = get_close_matches(path.name, names, n=1)
    return path.parent / similar[0] if similar else None


def read_toml_file(path: Path, what: str) -> dict[str, Any]:
    """Return the content of a TOML file; refuse content that would take long to parse."""
    text = read_text_file(path, what).replace("\r\n", "\n")
    label = f'{what} "{abbreviate(str(path), 200)}"'
    refuse_long_keys(text, label)
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{label} is not TOML: {abbreviate(str(error), 200)}") from error
    _check_values(content, label)
    return content


def refuse_long_keys(text: str, label: str) -> None:
    """Refuse a key of too many parts in time linear in the text.

    >>> refuse_long_keys("a.b = 1.5", "job.toml")
    >>> refuse_long_keys(".".join("a" * 99) + " = 1", "job.toml")
    Traceback (most recent call last):
    watersmeet.errors.InputError: job.toml has a key of 99 parts; at most 32 are read
    """
    unquoted = _QUOTED.sub("", text)
    parts = 1 + max((piece.count(".") for piece in _BETWEEN_KEYS.split(unquoted)), default=0)
    if parts > MAX_KEY_PARTS:
        raise InputError(f"{label} has a key of {parts:,} parts; at most {MAX_KEY_PARTS} are read")


def _read_regular_file(path: Path, label: str, max_bytes: int) -> bytes:
    _refuse_special_file(os.stat(path), label)  # before opening: opening a device can have effects
    # Without O_NONBLOCK, a pipe put in the file's place since then would block us.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        _refuse_special_file(status, label)
        content = file.read(max_bytes + 1)  # the reported size is not enough: it is 0 for files of /proc
    if len(content) > max_bytes:
        size = f"{status.st_size / 1e6:,.1f} MB" if status.st_size > max_bytes else "too"
        raise InputError(f"{label} is {size} large; at most {max_bytes / 1e6:g} MB are read")
    return content


def _refuse_special_file(status: os.stat_result, label: str) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    kind = next((name for test, name in _SPECIAL_FILE_KINDS.items() if test(status.st_mode)), "something else")
    raise InputError(f"{label} is {kind}, not a regular file", hint="write the text to a file and name that file")


_SPECIAL_FILE_KINDS = {
    stat.S_ISDIR: "a directory",
    stat.S_ISFIFO: "a named pipe",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISSOCK: "a socket",
}


def _check_values(content: dict[str, Any], label: str) -> None:
    """Refuse deeply nested values, and integers beyond 64 bits.

    Our own readers recurse, so nesting is bounded. The TOML specification demands the bound on integers: Python reads
    integers of any length, and then fails to print them or to convert them to floats.
    """
    level: list[Any] = [content]
    for _ in range(MAX_TOML_DEPTH):
        values = [value for group in level for value in (group.values() if isinstance(group, dict) else group)]
        if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
            raise InputError(f"{label} has an integer beyond 64 bits")
        level = [value for value in values if isinstance(value, dict | list)]
        if not level:
            return
    raise InputError(f"{label} nests sections more than {MAX_TOML_DEPTH} deep")


def write_atomically(place: Path, content: bytes) -> None:
    """Write a file so that it holds all its new content or remains unchanged, even if the machine stops."""
    unfinished = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        make_directory(place.parent)
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(place)
        flush_directory(place.parent)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise InputError(f'"{place}" cannot be written: {error.strerror or error}') from error


def make_directory(directory: Path) -> None:
    """Create a directory and flush its entry in the parent directory."""
    if not directory.is_dir():
        directory.mkdir(parents=True, exist_ok=True)
        flush_directory(directory.parent)


def flush_directory(directory: Path) -> None:
    """Flush the entries of a directory to disk, so that a file moved into it survives a power failure."""
    number = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
