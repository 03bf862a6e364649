"""Converts bytes of keys and values to columns and back: JSON and Avro, either plain or with the header of Confluent's
serializers.

- `format.py` (pure) describes the formats of keys and values.
- `wire.py` (pure) reads the schema id in front of a value.
- `avro_types.py` (pure) maps Avro schemas to Arrow types.
- `schemas.py` loads schemas by id.
- `avro.py` decodes and encodes columns of Avro values.
- `columns.py` (Spark) decodes and encodes columns of a table.
"""
