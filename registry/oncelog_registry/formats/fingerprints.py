"""Computes the fingerprint that identifies a schema, from its type, references and text without insignificant spaces
and line ends.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json

from oncelog_registry.schemas import PROTOBUF, Schema


def fingerprint(schema: Schema) -> str:
    """Return 64 hexadecimal digits, which are equal for schemas that get the same id."""
    references = sorted((each.name, each.subject, each.version) for each in schema.references)
    text = json.dumps([schema.type, canonical_text(schema), references], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def canonical_text(schema: Schema) -> str:
    """Return the text without insignificant spaces. The order of fields is kept, because another order makes another
    schema.
    """
    if schema.type == PROTOBUF:
        return _canonical_protobuf(schema.text)
    try:
        return json.dumps(json.loads(schema.text), separators=(",", ":"))
    except (ValueError, RecursionError):
        return schema.text.strip()


def _canonical_protobuf(text: str) -> str:
    descriptor = serialized_descriptor(text)
    if descriptor is not None:
        return base64.b64encode(descriptor).decode()
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def serialized_descriptor(text: str) -> bytes | None:
    """Return the FileDescriptorProto that a text contains in base64, as some clients register it; None for a .proto
    file.
    """
    if any(character in text for character in " ;{\n"):
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
