"""Avro schemas, by Apache's library: the parser, and the rules that say whether a reader's schema can read data of a
writer's schema.
"""

from __future__ import annotations

import json
from typing import Any

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroException
from avro.name import Names
from avro.schema import Schema as AvroSchema
from avro.schema import make_avsc_object

from oncelog_registry.formats.depth import check_depth
from oncelog_registry.formats.resolved import Resolved
from oncelog_registry.formats.time_limit import TimeLimit


def parse(resolved: Resolved) -> AvroSchema:
    """Return the parsed schema. Raises ValueError."""
    names = Names()
    for name, schema in resolved.referred:
        _parsed(schema.text, names, f"the referenced schema {name}: ")
    return _parsed(resolved.schema.text, names, "")


def differences(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """Return the reasons why `reader` cannot read data of `writer`; empty if it can."""
    result = _Checker(TimeLimit()).get_compatibility(reader, writer)
    if result.compatibility is SchemaCompatibilityType.compatible:
        return []
    found = sorted(str(each) for each in result.messages)
    where = ", ".join(sorted(str(each) for each in result.locations))
    return [f"{each} (at {where})" for each in found] or [f"the schemas differ at {where}"]


class _Checker(ReaderWriterCompatibilityChecker):
    """Apache's checker with a time limit: a comparison of two unions of thousands of branches would take hours, and a
    thread cannot be stopped.
    """

    def __init__(self, limit: TimeLimit) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._limit = limit

    def get_compatibility(self, *arguments: Any, **named: Any) -> Any:
        self._limit.check()
        return super().get_compatibility(*arguments, **named)


def _parsed(text: str, names: Names, where: str) -> AvroSchema:
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        if not text.strip().isidentifier():
            raise ValueError(f"{where}not a JSON document") from None
        document = text.strip()  # not JSON: perhaps a type name without quotes, which Avro also accepts
    check_depth(document)
    try:
        return make_avsc_object(document, names)
    except (AvroException, RecursionError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"{where}{error or type(error).__name__}") from error
