"""Numbers in the form people read: `0.3 % of a core`, `50,000 rows/s`, `12 MB`, `30 days`.

Use these functions for all text that people read: `explain`, the command line, the dashboard, error messages. JSON
keeps the plain numbers.
"""

from __future__ import annotations

_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_LONG_S = ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute"))
_SHORT_S = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))

#: The smallest percentage that is printed as a number.
_MIN_PERCENT = 0.01


def format_cores(cpu_per_s: float) -> str:
    """Format CPU seconds per second as a percentage of a core, or, from one core on, as a number of cores.

    >>> format_cores(0.00324), format_cores(0.156), format_cores(3.36e-08), format_cores(3.2)
    ('0.3 % of a core', '15.6 % of a core', '< 0.01 % of a core', '3.2 cores')
    """
    if cpu_per_s >= 0.9995:
        return f"{format_count(cpu_per_s)} {'core' if round(cpu_per_s, 2) == 1 else 'cores'}"
    return f"{format_percent(cpu_per_s)} of a core"


def format_percent(share: float) -> str:
    """Format a share as a percentage: one decimal, but two below 0.1 % and none from 100 % on.

    >>> format_percent(0.022), format_percent(0.0005), format_percent(1e-9), format_percent(1), format_percent(0)
    ('2.2 %', '0.05 %', '< 0.01 %', '100 %', '0 %')
    """
    percent = 100 * share
    if percent == 0:
        return "0 %"
    if percent < _MIN_PERCENT:
        return f"< {_MIN_PERCENT} %"
    if percent < 0.095:
        return f"{percent:.2f} %"
    return f"{percent:.1f} %" if percent < 99.95 else f"{percent:,.0f} %"


def format_selectivity(share: float) -> str:
    """Format a share as a percentage, or below 0.1 % as `1 in N`.

    >>> format_selectivity(1 / 3), format_selectivity(0.002), format_selectivity(1 / 500_000)
    ('33.3 %', '0.2 %', '1 in 500,000')
    """
    return f"1 in {format_count(1 / share)}" if 0 < share < 1e-3 else format_percent(share)


def format_count(value: float) -> str:
    """Format a count: whole numbers in full up to a million, fractions with three significant digits.

    >>> format_count(50_000), format_count(1_200_000), format_count(2.5), format_count(1 / 3), format_count(0)
    ('50,000', '1.2 M', '2.5', '0.333', '0')
    >>> format_count(999_999.7), format_count(123.456), format_count(0.0001)
    ('1 M', '123', '< 0.001')
    """
    for size, suffix in _LARGE:
        if value >= size * (1 - 5e-7):
            return f"{_three_digits(value / size)} {suffix}"
    if value == 0:
        return "0"
    if value < 0.001:
        return "< 0.001"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else _three_digits(value)


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun in the singular or the plural.

    >>> pluralize(1, "row"), pluralize(2000, "row"), pluralize(2, "batch")
    ('1 row', '2,000 rows', '2 batches')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith('ch') else 's'}"


def format_rate(per_s: float, noun: str = "rows") -> str:
    """Format a rate per second.

    >>> format_rate(50_000), format_rate(1_200_000), format_rate(0.5, "batches")
    ('50,000 rows/s', '1.2 M rows/s', '0.5 batches/s')
    """
    return f"{format_count(per_s)} {noun}/s"


def format_bytes(count: float) -> str:
    """Format a size in decimal units.

    >>> format_bytes(12_000_000), format_bytes(1_536), format_bytes(80), format_bytes(22_040_000_000)
    ('12 MB', '1.54 kB', '80 bytes', '22 GB')
    """
    for size, unit in _BYTES:
        if count >= size:
            return f"{_three_digits(count / size)} {unit}"
    return f"{count:,.0f} bytes"


def format_operation_time(seconds: float) -> str:
    """Format a short time with three digits.

    >>> format_operation_time(3.5e-10), format_operation_time(0.000245), format_operation_time(0.0)
    ('0.350 ns', '245 µs', '0')
    """
    if not seconds:
        return "0"
    size, unit = next((each for each in ((1e-3, "ms"), (1e-6, "µs")) if seconds >= each[0]), (1e-9, "ns"))
    amount = seconds / size
    return f"{amount:.{0 if amount >= 100 else 1 if amount >= 10 else 2 if amount >= 1 else 3}f} {unit}"


def format_duration(seconds: float) -> str:
    """Format a duration in the largest unit that it reaches.

    >>> format_duration(2.592e6), format_duration(90), format_duration(1), format_duration(0.25), format_duration(3_600)
    ('30 days', '1.5 minutes', '1 s', '250 ms', '1 hour')
    """
    for size, unit in _LONG_S:
        if seconds >= size * 0.9995:
            count = _three_digits(seconds / size)
            return f"{count} {unit}" if count == "1" else f"{count} {unit}s"
    if seconds == 0:
        return "0 s"
    for size, unit in _SHORT_S:
        if seconds >= size * 0.9995:
            return f"{_three_digits(seconds / size)} {unit}"
    return "< 1 µs"


def _three_digits(value: float) -> str:
    """Keep three significant digits, and all digits before the point.

    >>> _three_digits(22.04), _three_digits(1.5), _three_digits(4321.9)
    ('22', '1.5', '4,322')
    """
    if value >= 100:
        return f"{value:,.0f}"
    digits = 2 if value < 10 else 1
    text = f"{value:.{digits}f}" if value >= 1 else f"{value:.3g}"
    return text.rstrip("0").rstrip(".") if "." in text else text
