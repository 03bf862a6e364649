"""Bytes of keys and values as columns: JSON and Avro, alone or as Confluent's serializers frame them.

format.py      (pure) what the bytes are
wire.py        (pure) the schema's number before a value
avro_types.py  (pure) which columns an Avro schema makes
schemas.py     where schemas are that values name by number
avro.py        columns of Avro values decoded and encoded
columns.py     (Spark) the same for columns of a table
"""
