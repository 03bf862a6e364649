"""Registers `format("oncelog")` in Spark, which imports every module whose name begins with `pyspark_`."""

from oncelog_pipeline.spark.data_source import OncelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
