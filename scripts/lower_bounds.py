"""Print the oldest supported version of every dependency, one `name==version` per line.

The lower bounds of `pyproject.toml` are the only source. `make test-oldest` installs exactly these versions. Names of
extras are arguments:

python scripts/lower_bounds.py spark ui
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

PROJECT_FILE = Path(__file__).parents[1] / "pyproject.toml"


def list_requirements(project: dict[str, Any], extras: Iterable[str]) -> Iterator[Requirement]:
    """Yield the requirements of the core and of the extras that apply to this Python."""
    own_extras: dict[str, list[str]] = project["optional-dependencies"]
    for text in (*project["dependencies"], *(each for extra in extras for each in own_extras[extra])):
        requirement = Requirement(text)
        if requirement.name == project["name"]:
            yield from list_requirements({**project, "dependencies": []}, requirement.extras)
        elif requirement.marker is None or requirement.marker.evaluate():
            yield requirement


def find_lower_bound(requirement: Requirement) -> Version | None:
    """Return the oldest version that a requirement allows; None if it has no lower bound.

    >>> find_lower_bound(Requirement("pandas>=2.2,<3")), find_lower_bound(Requirement("pyspark>=4.0,<4.4"))
    (<Version('2.2')>, <Version('4.0')>)
    """
    bounds = [
        Version(each.version.removesuffix(".*")) for each in requirement.specifier if each.operator in (">=", "==")
    ]
    return max(bounds, default=None)


def pin_lower_bounds(project: dict[str, Any], extras: Iterable[str]) -> list[str]:
    """Return one pin per distribution. Where the core and an extra differ, the higher bound applies."""
    lowest: dict[str, Version] = {}
    for requirement in list_requirements(project, extras):
        bound = find_lower_bound(requirement)
        if bound is None:
            raise SystemExit(f"{requirement.name} has no lower bound in {PROJECT_FILE.name}")
        lowest[requirement.name] = max(bound, lowest.get(requirement.name, bound))
    return [f"{name}=={version}" for name, version in sorted(lowest.items())]


if __name__ == "__main__":
    print("\n".join(pin_lower_bounds(tomllib.loads(PROJECT_FILE.read_text(encoding="utf-8"))["project"], sys.argv[1:])))
