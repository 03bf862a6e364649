"""Bytes of keys and values as columns: JSON and Avro, alone or as Confluent's serializers frame them."""
