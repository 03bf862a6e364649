"""Data classes: a schema, a reference to another schema, and a version of a subject. Pure.

The classes convert from and to the JSON of the registry's REST interface.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from oncelog.serialization.errors import RegistryUnavailable

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another schema uses by `name`: a full name in Avro, a `$ref` in JSON Schema, or an import in
    Protobuf.
    """

    name: str
    subject: str
    version: int

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Schema:
    """The text of a schema, its type (AVRO, JSON, PROTOBUF) and its references."""

    text: str
    type: str = AVRO
    references: tuple[Reference, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the body of a request that registers the schema."""
        document: dict[str, Any] = {"schema": self.text}
        if self.type != AVRO:
            document["schemaType"] = self.type
        if self.references:
            document["references"] = [each.document() for each in self.references]
        return document


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """One version of a subject in a schema registry, with its schema."""

    subject: str
    version: int
    id: int
    schema: Schema


def schema_of(answer: Any) -> Schema:
    """Return the schema in a response of the registry. Raises RegistryUnavailable."""
    match answer:
        case {"schema": str(text), **more}:
            schema_type, references = more.get("schemaType") or AVRO, more.get("references") or []
            if isinstance(schema_type, str) and isinstance(references, list):
                return Schema(text, schema_type, tuple(map(_reference, references)))
    raise RegistryUnavailable("the answer is not a schema, as a schema registry gives it")


def registered_schema_of(answer: Any) -> RegisteredSchema:
    """Return the version in a response of the registry. Raises RegistryUnavailable."""
    match answer:
        case {"subject": str(subject), "version": int(version), "id": int(schema_id)}:
            return RegisteredSchema(subject, version, schema_id, schema_of(answer))
    raise RegistryUnavailable("the answer is not a version of a subject, as a schema registry gives it")


def _reference(document: Mapping[str, Any]) -> Reference:
    match document:
        case {"name": str(name), "subject": str(subject), "version": int(version)}:
            return Reference(name, subject, version)
    raise RegistryUnavailable("the answer has a reference without name, subject or version")
