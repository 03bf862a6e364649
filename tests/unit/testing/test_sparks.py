"""Which PySparks `make test-sparks` tests."""

from __future__ import annotations

import re

from tests.support.sparks import ROOT, SPARKS, TESTS


def test_the_release_that_other_tests_run_with_is_one_of_them() -> None:
    (pinned,) = re.findall(r"^pyspark==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned in SPARKS.values()


def test_the_guide_names_each_of_them() -> None:
    guide = (ROOT / "docs" / "spark.md").read_text()
    (table,) = re.findall(r"^## Versions of PySpark\n(.*?)^Spark before", guide, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"4\.\d+", table)) == set(SPARKS)


def test_the_oldest_is_the_oldest_that_is_installed_with_us() -> None:
    (oldest,) = re.findall(r'"pyspark>=(\d+\.\d+),', (ROOT / "pyproject.toml").read_text())
    assert oldest == min(SPARKS)


def test_the_tests_are_there() -> None:
    assert [path for path in TESTS if not (ROOT / path).exists()] == []
