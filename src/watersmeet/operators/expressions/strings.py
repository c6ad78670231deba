"""Functions on text, and LIKE. Positions and lengths count code points."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.algebra.expressions import Call, Expr, Like
from watersmeet.errors import QueryError
from watersmeet.operators.expressions.rows import (
    Array,
    Datum,
    EvaluationRows,
    broadcast,
    call_kernel,
    constant_value,
    is_all_ascii,
    map_unique,
    map_unique_rows,
)

#: No Arrow string is longer, so larger positions are equivalent to this one.
_MAX_POSITION = 2**31
_MAX_PATTERN_LENGTH = 10_000


def evaluate_lower(node: Call, rows: EvaluationRows) -> Datum:
    return _change_case(rows.evaluate_array(node.args[0]), "utf8_lower", str.lower)


def evaluate_upper(node: Call, rows: EvaluationRows) -> Datum:
    return _change_case(rows.evaluate_array(node.args[0]), "utf8_upper", str.upper)


def evaluate_length(node: Call, rows: EvaluationRows) -> Datum:
    arg = rows.evaluate_datum(node.args[0])
    is_bytes = (
        pa.types.is_binary(arg.type) or pa.types.is_large_binary(arg.type) or pa.types.is_fixed_size_binary(arg.type)
    )
    return call_kernel("binary_length" if is_bytes else "utf8_length", arg).cast(pa.int64())


def evaluate_trim(node: Call, rows: EvaluationRows) -> Datum:
    return call_kernel("utf8_trim", rows.evaluate_datum(node.args[0]), options=pc.TrimOptions(" "))


def evaluate_ltrim(node: Call, rows: EvaluationRows) -> Datum:
    return call_kernel("utf8_ltrim", rows.evaluate_datum(node.args[0]), options=pc.TrimOptions(" "))


def evaluate_rtrim(node: Call, rows: EvaluationRows) -> Datum:
    return call_kernel("utf8_rtrim", rows.evaluate_datum(node.args[0]), options=pc.TrimOptions(" "))


def evaluate_concat(node: Call, rows: EvaluationRows) -> Datum:
    """Concatenate all arguments; NULL if any is NULL."""
    parts = [rows.evaluate_datum(arg) for arg in node.args]
    return call_kernel(
        "binary_join_element_wise", *parts, pa.scalar("", parts[0].type), options=pc.JoinOptions("emit_null")
    )


def evaluate_substring(node: Call, rows: EvaluationRows) -> Datum:
    """Evaluate SUBSTRING(text, start [, count]).

    Positions start at 1, and 0 means 1. A negative start counts from the end.
    """
    text, *positions = (rows.evaluate_datum(arg) for arg in node.args)
    constants = [constant_value(position) for position in positions]
    if None not in constants:
        return _slice_text(text, *constants)
    arrays = [broadcast(part, rows.length) for part in (text, *positions)]
    return map_unique_rows(slice_string, arrays, text.type)


def evaluate_replace(node: Call, rows: EvaluationRows) -> Datum:
    """Evaluate REPLACE(text, search, replacement): every occurrence from the left; an empty search changes nothing."""
    text, search, replacement = (rows.evaluate_datum(arg) for arg in node.args)
    old, new = constant_value(search), constant_value(replacement)
    if old and new is not None:
        return call_kernel("replace_substring", text, options=pc.ReplaceSubstringOptions(old, new))
    return map_unique_rows(
        _replace_occurrences, [broadcast(part, rows.length) for part in (text, search, replacement)], text.type
    )


def evaluate_starts_with(node: Call, rows: EvaluationRows) -> Datum:
    return _match_part(node.args, rows, "starts_with", str.startswith)


def evaluate_ends_with(node: Call, rows: EvaluationRows) -> Datum:
    return _match_part(node.args, rows, "ends_with", str.endswith)


def evaluate_contains(node: Call, rows: EvaluationRows) -> Datum:
    return _match_part(node.args, rows, "match_substring", lambda text, part: part in text)


def evaluate_like(node: Like, rows: EvaluationRows) -> Datum:
    if len(node.pattern) > _MAX_PATTERN_LENGTH:
        raise QueryError(
            f"a LIKE pattern of {len(node.pattern)} characters is too long",
            span=node.span,
            hint=f"at most {_MAX_PATTERN_LENGTH}",
        )
    try:
        return call_kernel(
            "match_substring_regex",
            rows.evaluate_datum(node.arg),
            options=pc.MatchSubstringOptions(like_regex(node.pattern)),
        )
    except pa.ArrowInvalid as error:
        raise QueryError("this LIKE pattern is too long to compile", span=node.span) from error


def like_regex(pattern: str) -> str:
    r"""Return the regular expression (RE2) that matches the same whole strings as a LIKE pattern.

    >>> like_regex(r"a.%_\%")
    '\\A(?s:a\\..*.%)\\z'
    """
    parts: list[str] = []
    signs = iter(pattern)
    for sign in signs:
        if sign == "%":
            if parts[-1:] != [".*"]:
                parts.append(".*")
        elif sign == "_":
            parts.append(".")
        else:
            parts.append(_escape_for_regex(next(signs, sign) if sign == "\\" else sign))
    return rf"\A(?s:{''.join(parts)})\z"


def slice_string(text: str, start: int, count: int = _MAX_POSITION) -> str:
    """Return a substring: the definition that `_slice_text` follows, for positions that differ by row.

    >>> slice_string("stream", 2, 3), slice_string("stream", -2), slice_string("stream", -8, 3)
    ('tre', 'am', 's')
    """
    first = start - 1 if start > 0 else start and len(text) + start
    return text[max(first, 0) : max(first + max(count, 0), 0)]


def _slice_text(text: Datum, start: int, count: int = _MAX_POSITION) -> Array:
    start, count = max(-_MAX_POSITION, min(start, _MAX_POSITION)), max(0, min(count, _MAX_POSITION))
    first = start - 1 if start > 0 else start
    last = None if first < 0 <= first + count else first + count
    return call_kernel("utf8_slice_codeunits", text, options=pc.SliceOptions(first, last))


def _replace_occurrences(text: str, search: str, replacement: str) -> str:
    return text.replace(search, replacement) if search else text


def _change_case(values: Array, ascii_kernel: str, function: Callable[[str], str]) -> Array:
    """Apply Python's case rules (ß becomes SS); for pure ASCII, Arrow's kernel gives the same result."""
    return call_kernel(ascii_kernel, values) if is_all_ascii(values) else map_unique(function, values, values.type)


def _match_part(
    args: tuple[Expr, ...], rows: EvaluationRows, kernel: str, function: Callable[[str, str], Any]
) -> Datum:
    text, part = (rows.evaluate_datum(arg) for arg in args)
    word = constant_value(part)
    if word is not None:
        return call_kernel(kernel, text, options=pc.MatchSubstringOptions(word))
    return map_unique_rows(function, [broadcast(text, rows.length), broadcast(part, rows.length)], pa.bool_())


def _escape_for_regex(sign: str) -> str:
    return re.escape(sign) if sign.isascii() and sign != "\0" else r"\x00" if sign == "\0" else sign
