"""Shared by the tests of the pipeline: a cluster and a Spark in memory that may fail after any step."""
