"""The data pipeline: exactly once into and out of Spark, in pure PySpark.

options/  what a user sets
source/   reading topics
sink/     writing to topics exactly once
spark/    what Spark calls
"""
