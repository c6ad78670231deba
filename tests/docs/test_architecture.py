"""The names of modules, classes and functions in ARCHITECTURE.md and CONTRIBUTING.md exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md")
#: Where a path in a page may start.
BASES = (
    "",
    "src",
    "src/watersmeet",
    "src/watersmeet/runtime/buckets",
    "src/watersmeet/runtime/spark",
    "src/watersmeet/operators/expressions",
    "lab",
)
DOTTED = re.compile(r"[a-z_]+(?:\.[A-Za-z_]+)+")
PATHS = re.compile(r"[\w.-]+(?:/[\w.-]+)+|[\w-]+\.(?:py|md)")


def list_quoted_names(page: str, pattern: re.Pattern[str]) -> list[str]:
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    quoted = re.findall(r"`([^`]+)`", text)
    return sorted({name for name in quoted if pattern.fullmatch(name) and not name.startswith(("wm.", "run."))})


def is_defined(name: str) -> bool:
    """Return whether a dotted name is a module, or a definition at the top level of a module."""
    path = name.replace(".", "/")
    for base in BASES:
        place = ROOT / base / path
        if place.with_suffix(".py").is_file() or place.is_dir():
            return True
        module = place.parent.with_suffix(".py")
        if module.is_file() and place.name in list_definitions(module):
            return True
    return False


def list_definitions(module: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


@pytest.mark.parametrize("page", PAGES)
def test_every_dotted_name_is_defined(page: str) -> None:
    names = [name for name in list_quoted_names(page, DOTTED) if not name.endswith((".py", ".md"))]
    assert [name for name in names if not is_defined(name)] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_path_exists(page: str) -> None:
    paths = [name for name in list_quoted_names(page, PATHS) if "NAME" not in name]
    assert [name for name in paths if not any((ROOT / base / name).exists() for base in BASES)] == []
