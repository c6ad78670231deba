"""The core of the package: the distributions that `pip install watersmeet` installs, without any extra.

Tests run the core in a fresh process in which every other installed module is missing.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

_HIDE_MODULES = """
import sys

class ModuleHider:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, ModuleHider())
"""


def run_in_core(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh process without the modules that only extras and development tools install."""
    hide = _HIDE_MODULES.format(hidden=list_modules_outside_core())
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", hide + code, *arguments], capture_output=True, text=True, check=False
    )


@cache
def list_modules_outside_core() -> list[str]:
    """Return the installed top-level modules that no distribution of the core provides."""
    core = find_closure(PROJECT["dependencies"]) | {"watersmeet"}
    return sorted(
        module
        for module, owners in metadata.packages_distributions().items()
        if module.isidentifier() and core.isdisjoint(map(canonicalize_name, owners))
    )


def find_closure(requirements: Iterable[str]) -> set[str]:
    """Return the names of all distributions that the requirements install, directly and indirectly."""
    found: set[str] = set()
    waiting = [Requirement(each) for each in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            waiting += [Requirement(each) for each in metadata.requires(name) or ()]
    return found
