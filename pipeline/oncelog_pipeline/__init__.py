"""The data pipeline: exactly once into and out of Spark, in pure PySpark. To be built."""
