"""Mutants: small mistakes in the engine, made by patching its functions.

A patch names a module or class, one of its attributes, and a function that makes the broken attribute from the right
one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

Original = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Patch:
    """One attribute to replace: `broken` makes the new value from the old one."""

    owner: Any
    attribute: str
    broken: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """Description of a mistake, and the patches that make it."""

    mistake: str
    patches: tuple[Patch, ...]


def single_patch_mutant(mistake: str, owner: Any, attribute: str, broken: Callable[[Any], Any]) -> Mutant:
    """Return a mutant that needs a single patch."""
    return Mutant(mistake, (Patch(owner, attribute, broken),))


def apply_mutant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch the engine until the end of the test."""
    for patch in mutant.patches:
        monkeypatch.setattr(patch.owner, patch.attribute, patch.broken(getattr(patch.owner, patch.attribute)))
