"""Lower bounds are complete, and `make test-oldest` installs exactly them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from .core_environment import PROJECT, ROOT


def list_pins(*extras: str) -> dict[str, Version]:
    """Return the versions that `make test-oldest` installs."""
    command = [sys.executable, str(ROOT / "scripts" / "lower_bounds.py"), *extras]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return {name: Version(version) for name, version in (line.split("==") for line in lines)}


@pytest.mark.parametrize("extras", [(), ("spark",), ("all",)])
def test_every_pinned_version_fits_the_requirements(extras: tuple[str, ...]) -> None:
    pins = list_pins(*extras)
    required = [
        *PROJECT["dependencies"],
        *(each for extra in extras for each in PROJECT["optional-dependencies"][extra]),
    ]
    for requirement in map(Requirement, required):
        if requirement.name != PROJECT["name"] and (requirement.marker is None or requirement.marker.evaluate()):
            assert requirement.specifier.contains(pins[requirement.name])


def test_an_extra_may_need_a_newer_version_than_the_core() -> None:
    core, everything = list_pins(), list_pins("all")
    assert set(core) < set(everything)
    assert all(core[name] <= everything[name] for name in core)
