"""Converts JSON to values of an Avro schema. Pure.

The JSON has the form that `json_value` writes, so `oncelog produce` reads the output of `oncelog consume`. The value of
a union is written without the name of its branch; the form that Avro's own tools write, {"TYPE": value}, is also
accepted. Bytes
are text in the form of `json_values.bytes_of`; decimals are text or numbers; dates and times are ISO 8601, or the
number that Avro stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from oncelog.serialization.errors import SerializationError
from oncelog.serialization.json_values import bytes_of

INTS: Final = {"int": 2**31, "long": 2**63}


class _Unfit(ValueError):
    """A JSON value does not fit the schema; the message says where and why."""


def from_json(schema: Any, named: Mapping[str, Any], value: Any) -> Any:
    """Return the value that fastavro can write with a parsed schema. Raises SerializationError, whose message says
    where the JSON does not fit.
    """
    try:
        return _Reader(named).read(schema, value, "the value")
    except _Unfit as error:
        raise SerializationError(str(error)) from None
    except RecursionError:
        raise SerializationError("the value is nested too deeply") from None


class _Reader:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def read(self, schema: Any, value: Any, where: str) -> Any:
        if isinstance(schema, list):
            return self._union(schema, value, where)
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, str) and kind in self._named and not _is_definition(schema):
            return self.read(self._named[kind], value, where)
        if not isinstance(kind, str):
            return self.read(kind, value, where)
        logical = None if isinstance(schema, str) else schema.get("logicalType")
        if logical is not None and logical in _LOGICAL and isinstance(value, str):
            return _parsed(_LOGICAL[logical], logical, value, where)
        if logical == "decimal":
            return _parsed(_decimal, "decimal", value, where)
        return self._plain(kind, schema, value, where)

    def _plain(self, kind: str, schema: Any, value: Any, where: str) -> Any:
        match kind:
            case "null":
                _need(value is None, where, "null", value)
            case "boolean":
                _need(isinstance(value, bool), where, "a boolean", value)
            case "int" | "long":
                is_int = isinstance(value, int) and not isinstance(value, bool)
                _need(is_int and -INTS[kind] <= value < INTS[kind], where, f"an {kind}", value)
            case "float" | "double":
                return self._number(value, where)
            case "string":
                _need(isinstance(value, str), where, "a string", value)
            case "enum":
                _need(value in schema["symbols"], where, f"one of {', '.join(schema['symbols'])}", value)
            case "bytes" | "fixed":
                _need(isinstance(value, str), where, "bytes as a string", value)
                data: bytes = _parsed(bytes_of, "base64", value, where)
                if kind == "fixed":
                    _need(len(data) == schema["size"], where, f"{schema['size']} bytes", value)
                return data
            case "array":
                _need(isinstance(value, list), where, "an array", value)
                return [self.read(schema["items"], each, f"{where}[{index}]") for index, each in enumerate(value)]
            case "map":
                _need(isinstance(value, dict), where, "an object", value)
                return {key: self.read(schema["values"], each, f"{where}.{key}") for key, each in value.items()}
            case "record" | "error":
                return self._record(schema, value, where)
        return value

    def _number(self, value: Any, where: str) -> float:
        if value in ("nan", "inf", "-inf"):
            return float(value)
        _need(isinstance(value, int | float) and not isinstance(value, bool), where, "a number", value)
        return float(value)

    def _record(self, schema: Any, value: Any, where: str) -> dict[str, Any]:
        _need(isinstance(value, dict), where, f"an object, a record {schema['name']}", value)
        fields = {field["name"]: field for field in schema["fields"]}
        unknown = [name for name in value if name not in fields]
        if unknown:
            raise _Unfit(f"{where} has the field {unknown[0]!r}, which the record {schema['name']} does not have")
        read = {}
        for name, field in fields.items():
            if name in value:
                read[name] = self.read(field["type"], value[name], f"{where}.{name}")
            elif "default" not in field:
                raise _Unfit(f"{where} lacks the field {name!r} of the record {schema['name']}, which has no default")
        return read

    def _union(self, branches: list[Any], value: Any, where: str) -> Any:
        """Return the value converted to the first branch of the union that it fits. A record or other named type
        becomes fastavro's
        pair of name and value, so that the writer chooses the same branch.
        """
        if isinstance(value, dict) and len(value) == 1:
            ((tag, inner),) = value.items()
            for branch in branches:
                if tag == _branch_name(branch) and not self._fits_untagged(branches, value, where):
                    return self._branch(branch, inner, where)
        reasons = []
        for branch in branches:
            try:
                return self._branch(branch, value, where)
            except _Unfit as error:
                reasons.append(str(error))
        raise _Unfit("; ".join(dict.fromkeys(reasons)))

    def _fits_untagged(self, branches: list[Any], value: Any, where: str) -> bool:
        for branch in branches:
            try:
                self._branch(branch, value, where)
            except _Unfit:
                continue
            return True
        return False

    def _branch(self, branch: Any, value: Any, where: str) -> Any:
        read = self.read(branch, value, where)
        name = _branch_name(branch)
        return (name, read) if name in self._named else read


def _is_definition(schema: Any) -> bool:
    return isinstance(schema, dict) and "name" in schema


def _branch_name(branch: Any) -> str:
    """Return the name of a branch in Avro's JSON encoding."""
    if isinstance(branch, str):
        return branch
    return str(branch.get("name", branch["type"]))


def _need(holds: bool, where: str, wanted: str, value: Any) -> None:
    if not holds:
        raise _Unfit(f"{where} must be {wanted}, not {value!r:.60}")


def _parsed(parse: Callable[[Any], Any], wanted: str, value: Any, where: str) -> Any:
    try:
        return parse(value)
    except (ValueError, TypeError, InvalidOperation):
        raise _Unfit(f"{where} must be {wanted}, not {value!r:.60}") from None


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError
    return Decimal(str(value))


_LOGICAL: Final[Mapping[str, Callable[[str], Any]]] = {
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    "timestamp-millis": datetime.fromisoformat,
    "timestamp-micros": datetime.fromisoformat,
    "local-timestamp-millis": datetime.fromisoformat,
    "local-timestamp-micros": datetime.fromisoformat,
    "uuid": UUID,
}
