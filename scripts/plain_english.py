"""Check that names and prose of the tree stay plain: the rules of docs/glossary.toml, applied to every tracked file.

Three rules:

1. No word that the glossary avoids in docstrings, comments, messages and pages. Text in backticks is code and is
  skipped.
2. No function named by a single participle (`measured`): a name says what is done, and to what.
3. No two classes with the same name.

Exceptions are listed in docs/glossary-exceptions.txt. The list can only shrink: an entry that is no longer needed fails
the check, and so does an entry that the last two commits do not have.

Usage: python scripts/plain_english.py [PATH ...]
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = Path("docs/glossary.toml")
EXCEPTIONS = Path("docs/glossary-exceptions.txt")

#: Generated pages, the glossary and the tests of this check quote words that the glossary avoids.
SKIPPED = (
    "docs/papers/",
    "docs/benchmarks/",
    "docs/glossary",
    "CHANGELOG.md",
    "tests/docs/test_plain_english.py",
)
#: Words that end like a participle but are verbs or nouns.
NOT_PARTICIPLES = frozenset(
    [
        "bed",
        "bleed",
        "breed",
        "embed",
        "exceed",
        "feed",
        "heed",
        "hundred",
        "need",
        "proceed",
        "red",
        "seed",
        "shed",
        "speed",
        "succeed",
        "weed",
    ]
)
IRREGULAR_PARTICIPLES = frozenset(
    [
        "begun",
        "bent",
        "bound",
        "bought",
        "broken",
        "brought",
        "built",
        "caught",
        "chosen",
        "cut",
        "dealt",
        "done",
        "drawn",
        "driven",
        "fallen",
        "felt",
        "found",
        "given",
        "gone",
        "grown",
        "heard",
        "held",
        "hidden",
        "kept",
        "known",
        "laid",
        "led",
        "left",
        "lent",
        "lost",
        "made",
        "meant",
        "met",
        "paid",
        "put",
        "said",
        "seen",
        "sent",
        "set",
        "shown",
        "spent",
        "split",
        "spread",
        "spun",
        "stood",
        "stuck",
        "sworn",
        "taken",
        "taught",
        "thought",
        "thrown",
        "told",
        "torn",
        "understood",
        "woken",
        "won",
        "worn",
        "written",
    ]
) - {"cut", "put", "set", "split", "spread", "bound", "found", "left", "led", "met", "lent"}


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A place that breaks a rule."""

    path: str
    line: int
    rule: str
    subject: str

    @property
    def key(self) -> str:
        """Identity in the list of exceptions: without the line, which moves."""
        return f"{self.path}: {self.rule}: {self.subject}"


def main(arguments: list[str]) -> int:
    """Print problems and return the exit code."""
    problems = find_problems(list_files(arguments))
    exceptions = read_exceptions()
    found = {problem.key for problem in problems}
    for problem in sorted(problems):
        if problem.key not in exceptions:
            print(f"{problem.path}:{problem.line}: {problem.rule}: {problem.subject}")
    failed = not found <= exceptions
    if not arguments:
        for key in sorted(exceptions - found):
            print(f"{EXCEPTIONS}: remove this entry, nothing needs it any more: {key}")
            failed = True
        for key in sorted(find_new_exceptions(exceptions)):
            print(f"{EXCEPTIONS}: the list can only shrink; fix the place instead: {key}")
            failed = True
    return int(failed)


def list_files(arguments: Iterable[str]) -> list[Path]:
    """Return the tracked Python and Markdown files below the given paths."""
    tracked = _run_git("ls-files", "-co", "--exclude-standard", "--", *arguments) or ""
    names = (name for name in tracked.splitlines() if name.endswith((".py", ".md")) and not name.startswith(SKIPPED))
    return [Path(name) for name in names if (ROOT / name).is_file()]


def find_problems(paths: Iterable[Path]) -> list[Problem]:
    """Return every place that breaks a rule."""
    avoided = read_avoided_words()
    problems: list[Problem] = []
    classes: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for path in paths:
        text = (ROOT / path).read_text(encoding="utf-8")
        if path.suffix == ".md":
            problems += _check_words(path, read_paragraphs(text), avoided)
            continue
        tree = ast.parse(text)
        problems += _check_words(path, [*read_comments(text), *read_strings(tree)], avoided)
        problems += [
            Problem(str(path), node.lineno, "participle", node.name) for node in ast.walk(tree) if _is_participle(node)
        ]
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append((str(path), node.lineno))
    for name, places in classes.items():
        problems += [Problem(path, line, "class name used twice", name) for path, line in places if len(places) > 1]
    return problems


def read_avoided_words() -> re.Pattern[str]:
    """Return a pattern that matches every word or phrase that the glossary avoids."""
    glossary = tomllib.loads((ROOT / GLOSSARY).read_text(encoding="utf-8"))
    words = {word for entry in (*glossary["term"], *glossary["plain"]) for word in entry.get("avoid", [])}
    return re.compile(r"(?i)\b(" + "|".join(sorted(map(re.escape, words), key=len, reverse=True)) + r")\b")


def read_exceptions() -> set[str]:
    """Return the keys of accepted problems."""
    return _parse_exceptions((ROOT / EXCEPTIONS).read_text(encoding="utf-8"))


def find_new_exceptions(exceptions: set[str]) -> set[str]:
    """Return entries that one of the last two commits does not have; none where there is no history to compare with."""
    new: set[str] = set()
    for commit in ("HEAD", "HEAD~1"):
        before = _run_git("show", f"{commit}:{EXCEPTIONS}")
        if before is not None:
            new |= exceptions - _parse_exceptions(before)
    return new


def read_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of a Python file, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")


def read_strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield docstrings and messages of a Python file: every string of three words or more."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") > 1:
            yield node.lineno, node.value


def read_paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page outside code blocks."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield number, line


def _check_words(path: Path, texts: Iterable[tuple[int, str]], avoided: re.Pattern[str]) -> Iterator[Problem]:
    for line, text in texts:
        prose = re.sub(r"`[^`]*`", "", re.sub(r"\s+", " ", text))
        for match in avoided.finditer(prose):
            yield Problem(str(path), line, "avoided word", match.group(0).lower())


def _is_participle(node: ast.AST) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    decorators = {ast.unparse(each).split(".")[-1] for each in node.decorator_list}
    name = node.name.strip("_")
    if "_" in name or name != name.lower() or decorators & {"property", "cached_property", "setter"}:
        return False
    return (name.endswith("ed") and name not in NOT_PARTICIPLES) or name in IRREGULAR_PARTICIPLES


def _parse_exceptions(text: str) -> set[str]:
    return {line for line in text.splitlines() if line.strip() and not line.startswith("#")}


def _run_git(*arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
