"""An unusable PySpark is reported before Spark says that it has no such data source."""

from __future__ import annotations

import pytest

from oncelog_pipeline.spark.environment import UnsupportedPySpark, check_version, pyspark_version


@pytest.mark.parametrize("version", ["3.5.9", "2.4.8"])
def test_a_pyspark_without_data_sources_in_python_is_refused(version: str) -> None:
    with pytest.raises(UnsupportedPySpark, match=rf"PySpark {version} is installed.*install PySpark 4\.0 or newer"):
        check_version(version)


@pytest.mark.parametrize("version", ["4.0.0", "4.3.0", "10.1", "4.0.0.dev1", None])
def test_supported_pyspark_versions_are_accepted(version: str | None) -> None:
    check_version(version)


def test_the_version_is_that_of_the_package() -> None:
    pyspark = pytest.importorskip("pyspark")
    assert pyspark_version() == pyspark.__version__
