"""Builds a request from plain data, with dicts in place of structs; omitted fields are empty or have Kafka's
default.
"""

from __future__ import annotations

from typing import Any

from oncelog_protocol.schema import FieldSchema, fields_of

Plain = dict[str, Any]

EMPTY: dict[str, Any] = {"array": [], "string": "", "boolean": False, "bytes": b"", "uuid": bytes(16), "records": None}


def message(kind: type[Any], values: Plain) -> Any:
    """Return the message with these values. Raises KeyError for a field that the message does not have."""
    fields = {field.name: field for field in fields_of(kind)}
    if unknown := values.keys() - fields.keys():
        raise KeyError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    given = {name: _value(fields[name], value) for name, value in values.items()}
    missing = {name: _empty(field) for name, field in fields.items() if name not in given and not field.has_default}
    return kind(**given, **missing)


def _value(field: FieldSchema, value: Any) -> Any:
    if field.struct is None or value is None:
        return value
    if field.type_name == "array":
        return [message(field.struct, one) for one in value]
    return message(field.struct, value)


def _empty(field: FieldSchema) -> Any:
    if field.type_name == "string" and field.nullable:
        return None
    return EMPTY.get(field.type_name, 0)
