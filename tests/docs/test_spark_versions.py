"""The table of Spark versions has every feature that the tests cover, and every version that the package allows."""

from __future__ import annotations

import re

from packaging.requirements import Requirement

from tests.packaging.core_environment import PROJECT
from tests.spark import test_versions, version_table


def list_lines() -> list[list[str]]:
    page = version_table.PAGE.read_text(encoding="utf-8")
    table = page.partition(version_table.BEGIN)[2].partition(version_table.END)[0]
    return [re.split(r" \| ", line.strip("| ")) for line in table.splitlines()]


def list_allowed_versions() -> list[str]:
    spark = next(each for each in map(Requirement, PROJECT["optional-dependencies"]["spark"]) if each.name == "pyspark")
    return [f"4.{minor}" for minor in range(9) if spark.specifier.contains(f"4.{minor}.0")]


def test_the_columns_are_the_versions_that_the_package_allows() -> None:
    assert list_lines()[0] == ["feature", *list_allowed_versions()]


def test_every_tested_feature_has_a_row() -> None:
    rows = {line[0] for line in list_lines()[2:]}
    assert {f"{feature}, finite tables" for feature in test_versions.FEATURES} < rows
    assert {shown for shown in version_table.SHOWN.values() if shown.startswith("join")} < rows


def test_the_table_names_only_tests_that_exist() -> None:
    assert all(hasattr(test_versions, name) for name in version_table.SHOWN)
