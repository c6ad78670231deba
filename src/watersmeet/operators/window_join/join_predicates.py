"""Equality classes: which keys of which inputs have to be equal, transitivity included.

`a.x = b.x AND b.x = c.x` is one class with a key on each of three inputs, so any of them can be probed from any other.
"""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.algebra.expressions import Comparison, Expr, sources_of


@dataclass(frozen=True, slots=True)
class EqualityClasses:
    """`keys[c][i]` is the key of input i in class c. `residuals` are the predicates over several inputs that no class
    covers.
    """

    keys: tuple[dict[int, Expr], ...]
    residuals: tuple[Expr, ...]

    def keys_of(self, number: int) -> tuple[tuple[int, Expr], ...]:
        return tuple((c, members[number]) for c, members in enumerate(self.keys) if number in members)

    def connections(self, target: int, known: list[int]) -> list[tuple[int, int]]:
        """Classes in which the target has a key and so has one of the known inputs, with the first such input."""
        found = []
        for key_class, members in enumerate(self.keys):
            if target in members:
                provider = next((i for i in known if i in members), None)
                if provider is not None:
                    found.append((key_class, provider))
        return found


def equality_classes(predicates: tuple[Expr, ...], numbers: dict[str, int]) -> EqualityClasses:
    """Merges equalities between expressions over one input each into classes; everything else stays a residual.

    An input keeps one key per class. An equality that would give it a second one stays a residual, so nothing is lost.
    """
    classes: list[dict[int, Expr]] = []
    residuals: list[Expr] = []
    for predicate in predicates:
        ends = _key_ends(predicate, numbers)
        if ends is None or not _merge(classes, ends):
            residuals.append(predicate)
    return EqualityClasses(tuple(classes), tuple(residuals))


def _key_ends(predicate: Expr, numbers: dict[str, int]) -> dict[int, Expr] | None:
    """The two sides of an equality between two inputs, by input; None for any other predicate."""
    if not (isinstance(predicate, Comparison) and predicate.op == "="):
        return None
    sides = [(sources_of(side), side) for side in (predicate.left, predicate.right)]
    if any(len(read) != 1 for read, _ in sides):
        return None
    ends = {numbers[next(iter(read))]: side for read, side in sides}
    return ends if len(ends) == 2 else None


def _merge(classes: list[dict[int, Expr]], ends: dict[int, Expr]) -> bool:
    """Adds the equality to the classes that have one of its ends; False when an input would get two keys in one class."""
    touched = [members for members in classes if any(members.get(i) == key for i, key in ends.items())]
    merged: dict[int, Expr] = {}
    for part in (*touched, ends):
        for number, key in part.items():
            if merged.setdefault(number, key) != key:
                return False
    for members in touched:
        classes.remove(members)
    classes.append(merged)
    return True
