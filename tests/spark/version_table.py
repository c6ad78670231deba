"""Write the table of Spark versions and features in `docs/spark-versions.md`.

`make test-spark VERSION=4.1 ONLY=tests/spark/test_versions.py` stores the outcome of every test below `build`. Then
`python -m tests.spark.version_table` writes one column per version whose outcomes are there.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spark-versions.md"
OUTCOMES = ROOT / "build" / "spark-versions"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"

#: Feature that each test of `test_versions.py` shows. The parameter of a test, if it has one, is the kind of query.
SHOWN = {
    "test_finite_tables_give_the_rows_of_the_embedded_engine": "finite tables",
    "test_directories_give_the_same_rows_over_a_restart": "streaming paths, with a restart",
    "test_a_streaming_frame_with_a_finite_table_gives_the_same_rows": "join of two, a streaming frame and a table",
    "test_shed_rows_are_in_the_ledger": "join of two, shedding, streaming paths",
}

Outcomes = dict[str, str]


def name_feature(test: str) -> str | None:
    """Return the row of a test, or None if it has no row.

    >>> name_feature("test_finite_tables_give_the_rows_of_the_embedded_engine[theta join]")
    'theta join, finite tables'
    """
    function, _, parameter = test.removesuffix("]").partition("[")
    shown = SHOWN.get(function)
    return shown if shown is None or not parameter else f"{parameter}, {shown}"


def read_outcomes(report: Path) -> Outcomes:
    """Return the outcome of every feature from a JUnit report."""
    found: Outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        feature = name_feature(case.get("name", ""))
        if feature is not None:
            found[feature] = _name_outcome(case)
    return found


def _name_outcome(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "fails"
    return "works" if case.find("skipped") is None else "not run"


def format_table(by_version: dict[str, Outcomes]) -> str:
    """Return the table, with one row per feature and one column per version.

    >>> print(format_table({"4.0": {"join": "works"}, "4.1": {}}), end="")
    | feature | 4.0 | 4.1 |
    | --- | --- | --- |
    | join | works | not run |
    """
    features = dict.fromkeys(feature for outcomes in by_version.values() for feature in outcomes)
    lines = [
        f"| feature | {' | '.join(by_version)} |",
        f"| --- |{' --- |' * len(by_version)}",
        *(
            f"| {feature} | {' | '.join(outcomes.get(feature, 'not run') for outcomes in by_version.values())} |"
            for feature in features
        ),
    ]
    return "".join(f"{line}\n" for line in lines)


def replace_table(page: str, table: str) -> str:
    """Return the page with this table between its two marks."""
    return re.sub(f"{BEGIN}.*?{END}", lambda _: BEGIN + table + END, page, flags=re.DOTALL)


def main() -> None:
    """Write the table from the stored outcomes."""
    reports = {report.stem: read_outcomes(report) for report in sorted(OUTCOMES.glob("*.xml"))}
    PAGE.write_text(replace_table(PAGE.read_text(encoding="utf-8"), format_table(reports)), encoding="utf-8")


if __name__ == "__main__":
    main()
