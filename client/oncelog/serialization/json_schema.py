"""The JSON Schema codec, based on jsonschema. Pure.

A `$ref` refers to a part of the schema, or to another schema that the registry lists as a reference. Nothing is fetched
from the address in a `$ref`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from jsonschema import Draft7Validator, SchemaError, ValidationError
from jsonschema.validators import validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from oncelog.serialization.codec import Codec
from oncelog.serialization.documents import json_bytes, json_document
from oncelog.serialization.errors import SerializationError
from oncelog.serialization.schemas import JSON, Schema


class JsonSchemaCodec(Codec):
    """A parsed JSON Schema; `name` is its title. `decode` does not validate a document; call `validate` for that."""

    type: ClassVar[str] = JSON

    def __init__(self, schema: Schema, referred: Mapping[str, Schema]) -> None:
        """Parse the schema. Raises SerializationError."""
        try:
            root = json.loads(schema.text)
            others = {name: json.loads(each.text) for name, each in referred.items()}
            cls = validator_for(root, default=Draft7Validator)
            cls.check_schema(root)
            resources = [
                (uri, Resource.from_contents(each, default_specification=DRAFT7)) for uri, each in _uris(others)
            ]
            # The validator gets its own registry, which fetches nothing; the default registry would use the network.
            self._validator = cls(root, registry=Registry().with_resources(resources))
        except (SchemaError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise SerializationError(
                f"the schema is not a JSON Schema that can be used: {getattr(error, 'message', error)}"
            ) from error
        title = root.get("title") if isinstance(root, dict) else None
        self.name = title if isinstance(title, str) else None

    def encode(self, value: Any) -> bytes:
        return json_bytes(value)

    def decode(self, payload: bytes) -> Any:
        return json_document(payload)

    def validate(self, value: Any) -> None:
        """Validate a document. Raises SerializationError, whose message says where the document does not fit the
        schema.
        """
        try:
            self._validator.validate(value)
        except ValidationError as error:
            raise SerializationError(
                f"a document is not of its JSON Schema{_of(self.name)}: {error.json_path}: {error.message:.300}"
            ) from error
        except (Unresolvable, RecursionError) as error:
            raise SerializationError(f"the JSON Schema{_of(self.name)} cannot be used: {error!r:.300}") from error

    def from_json(self, value: Any) -> Any:
        return value


def _uris(others: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the referenced schemas, each under the name that the schema uses and under its own `$id`."""
    found = list(others.items())
    for document in others.values():
        own = document.get("$id") if isinstance(document, dict) else None
        if isinstance(own, str) and own not in others:
            found.append((own, document))
    return found


def _of(name: str | None) -> str:
    return "" if name is None else f" {name}"
