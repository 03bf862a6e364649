"""A schema as a client sends it, and a version of a subject."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
TYPES: Final = (AVRO, JSON, PROTOBUF)


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to another schema, by `name`: a full name of Avro, a `$ref` of JSON Schema, an import of Protobuf."""

    name: str
    subject: str
    version: int

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Schema:
    """The text of a schema with its type and references, as it was registered."""

    text: str
    type: str = AVRO
    references: tuple[Reference, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the fields of a schema in a response. For an Avro schema without references, type and references are
        omitted, as old clients expect.
        """
        document: dict[str, Any] = {}
        if self.type != AVRO:
            document["schemaType"] = self.type
        if self.references:
            document["references"] = [each.document() for each in self.references]
        document["schema"] = self.text
        return document


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """One registered version of a subject. A soft-deleted version is kept, because readers of old records still need
    its schema.
    """

    subject: str
    version: int
    id: int
    schema: Schema
    fingerprint: str = field(compare=False)
    """The schema's fingerprint: equal for schemas with the same meaning, which share one id."""
    deleted: bool = False

    def document(self) -> dict[str, Any]:
        return {"subject": self.subject, "version": self.version, "id": self.id, **self.schema.document()}
