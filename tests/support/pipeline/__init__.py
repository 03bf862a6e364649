"""What tests of the pipeline share: a cluster and a Spark in memory, whose every step can be the last."""
