"""The PySpark versions that `make test-sparks` tests."""

from __future__ import annotations

import re

from tests.support.sparks import ROOT, SPARKS, TESTS


def test_the_pyspark_of_the_other_tests_is_a_supported_one() -> None:
    (pinned,) = re.findall(r"^pyspark==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned in SPARKS.values()


def test_the_guide_names_each_supported_pyspark() -> None:
    guide = (ROOT / "docs" / "spark.md").read_text()
    (section,) = re.findall(r"^## Versions of PySpark\n(.*?)^## ", guide, re.MULTILINE | re.DOTALL)
    table = "".join(line for line in section.splitlines() if line.startswith("|"))
    assert set(re.findall(r"4\.\d+", table)) == set(SPARKS)


def test_the_oldest_supported_pyspark_is_the_oldest_installable() -> None:
    (oldest,) = re.findall(r'"pyspark>=(\d+\.\d+),', (ROOT / "pyproject.toml").read_text())
    assert oldest == min(SPARKS)


def test_the_tests_to_run_exist() -> None:
    assert [path for path in TESTS if not (ROOT / path).exists()] == []
