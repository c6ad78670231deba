"""Arrow types that not every supported version of pyarrow has: views of text and bytes, list views, narrow decimals."""

from __future__ import annotations

import pyarrow as pa

#: Since pyarrow 16.
TEXT_VIEWS: tuple[pa.DataType, ...] = (pa.string_view(),) if hasattr(pa, "string_view") else ()
BYTES_VIEWS: tuple[pa.DataType, ...] = (pa.binary_view(),) if hasattr(pa, "binary_view") else ()
_LIST_VIEW_TESTS = tuple(
    getattr(pa.types, name) for name in ("is_list_view", "is_large_list_view") if hasattr(pa.types, name)
)

#: Decimals of 32 and 64 bits, since pyarrow 19.
NARROW_DECIMALS: tuple[pa.DataType, ...] = (pa.decimal32(1), pa.decimal64(1)) if hasattr(pa, "decimal32") else ()


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type holds text, in any encoding.

    >>> [is_text(kind) for kind in (pa.string(), pa.large_string(), pa.binary())]
    [True, True, False]
    """
    return kind in (pa.string(), pa.large_string(), *TEXT_VIEWS)


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a type holds bytes of any length, in any encoding."""
    return kind in (pa.binary(), pa.large_binary(), *BYTES_VIEWS)


def is_text_view(kind: pa.DataType) -> bool:
    return kind in TEXT_VIEWS


def is_bytes_view(kind: pa.DataType) -> bool:
    return kind in BYTES_VIEWS


def is_list_view(kind: pa.DataType) -> bool:
    """Return whether a type is a list view, of small or large lists."""
    return any(test(kind) for test in _LIST_VIEW_TESTS)
