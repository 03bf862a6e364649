"""The Spark session of a job has this project's defaults, unless the job sets the same key."""

from __future__ import annotations

from oncelog_pipeline.jobs.session import LOOPBACK, with_defaults

ARROW_BATCHES = "spark.sql.execution.arrow.maxBytesPerBatch"


def test_arrow_batches_are_small_unless_the_job_says_otherwise() -> None:
    """Spark's default, 10,000 rows, costs the JVM a third more CPU for rows of 1 KB."""
    assert with_defaults({})[ARROW_BATCHES] == "2m"
    assert with_defaults({ARROW_BATCHES: "8m"})[ARROW_BATCHES] == "8m"


def test_only_a_session_on_this_machine_listens_on_the_loopback_interface_alone() -> None:
    assert LOOPBACK.items() <= with_defaults({}).items()
    assert LOOPBACK.keys().isdisjoint(with_defaults({"spark.master": "spark://cluster:7077"}))
    assert with_defaults({"spark.driver.host": "10.0.0.1"})["spark.driver.host"] == "10.0.0.1"
