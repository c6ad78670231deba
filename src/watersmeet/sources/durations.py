"""Durations as callers write them."""

from __future__ import annotations

import datetime as dt
import math
import re
from fractions import Fraction
from numbers import Real

import numpy as np

from watersmeet.algebra.windows import MAX_LENGTH_US, UNITS_US
from watersmeet.errors import InputError, abbreviate

Duration = str | int | float | dt.timedelta

_UNIT_ABBREVIATIONS = {
    "us": "MICROSECOND",
    "µs": "MICROSECOND",
    "μs": "MICROSECOND",
    "ms": "MILLISECOND",
    "s": "SECOND",
    "sec": "SECOND",
    "secs": "SECOND",
    "m": "MINUTE",
    "min": "MINUTE",
    "mins": "MINUTE",
    "h": "HOUR",
    "hr": "HOUR",
    "hrs": "HOUR",
    "d": "DAY",
    "w": "WEEK",
}
_PART = re.compile(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*([a-zµμ]+)", re.ASCII | re.IGNORECASE)
_HINT = 'write it like "5 seconds", "100 ms" or "1h", as a number of seconds, or as a timedelta'
_MICROSECOND = dt.timedelta(microseconds=1)


def parse_duration_us(value: Duration, what: str = "a duration") -> int:
    """Return a duration in microseconds from text with units, a number of seconds, or a timedelta; never negative.

    >>> parse_duration_us("5 seconds"), parse_duration_us("1h 30m")
    (5000000, 5400000000)
    >>> parse_duration_us(0.25), parse_duration_us(dt.timedelta(days=1))
    (250000, 86400000000)
    """
    length_us = _parse_length_us(value, what)
    if length_us < 0:
        raise InputError(f"{what} cannot be negative, got {_format_value(value)}", hint=_HINT)
    if length_us > MAX_LENGTH_US:
        raise InputError(f"{what} of {_format_value(value)} is too long", hint="the longest is about 18,000 years")
    return length_us


def _parse_length_us(value: Duration, what: str) -> int:
    match value:
        case bool():
            raise InputError(f"{what} cannot be {value}", hint=_HINT)
        case str():
            return _parse_text(value, what)
        case dt.timedelta():
            return value // _MICROSECOND
        case Real():
            if isinstance(value, float | np.floating) and not math.isfinite(value):
                raise InputError(f"{what} cannot be {value}", hint=_HINT)
            return round(Fraction(value) * 1_000_000)
        case _:
            raise InputError(f"{what} cannot be a {type(value).__name__}", hint=_HINT)


def _parse_text(text: str, what: str) -> int:
    if text.lstrip().startswith("-"):
        raise InputError(f"{what} cannot be negative, got {_format_value(text)}", hint=_HINT)
    total, position = Fraction(0), 0
    while position < len(text.rstrip()):
        part = _PART.match(text, position)
        if part is None:
            raise InputError(f"{_format_value(text)} is not {what}", hint=_HINT)
        total += Fraction(part[1]) * _lookup_unit_us(part[2], text, what)
        position = part.end()
    if not position or total.denominator != 1:
        raise InputError(f"{_format_value(text)} is not {what} in whole microseconds", hint=_HINT)
    return int(total)


def _lookup_unit_us(word: str, text: str, what: str) -> int:
    lowered = word.lower()
    unit = _UNIT_ABBREVIATIONS.get(lowered) or lowered.upper().removesuffix("S")
    if unit not in UNITS_US:
        raise InputError(f'{_format_value(text)} is not {what}: there is no unit "{word[:40]}"', hint=_HINT)
    return UNITS_US[unit]


def _format_value(value: object) -> str:
    try:
        return abbreviate(repr(value))
    except ValueError:  # Python does not print integers of more than 4,300 digits
        return "a number of thousands of digits"
