"""Shared by the tests of the pipeline: a Kafka cluster and a Spark in memory, both of which may fail after any step."""
