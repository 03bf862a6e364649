"""The data pipeline: exactly once into and out of Spark, in pure PySpark.

sink/    writing to topics exactly once
"""
