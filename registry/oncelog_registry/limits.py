"""The limits of the registry. Each request beyond one of them is refused with a message that names the limit."""

from __future__ import annotations

from typing import Final

MAX_BODY_BYTES: Final = 2 * 1024 * 1024
"""The longest body of a request, in bytes."""
MAX_SCHEMA_BYTES: Final = 900_000
"""The longest schema with its references, in bytes as JSON, where each quote takes two: its record fits the default
`max.message.bytes` of a topic."""
MAX_SUBJECT_CHARACTERS: Final = 255
MAX_REFERENCES: Final = 100
"""How many schemas one schema may refer to, directly and indirectly."""
MAX_SCHEMA_DEPTH: Final = 100
"""How deep a JSON document of a schema may nest."""
BODY_SECONDS: Final = 20.0
"""How long a client may take to send the body of a request."""
CHECK_SECONDS: Final = 30.0
"""How long a schema may take to be parsed and compared with the earlier versions."""
PROTOC_SECONDS: Final = 20.0
"""How long the compiler of Protobuf may take."""
MAX_CHECKS: Final = 4
"""How many schemas are parsed and compared at the same time; further ones wait."""
CATCH_UP_SECONDS: Final = 20.0
"""How long a request waits until the registry has read the topic to its end."""
WRITE_ATTEMPTS: Final = 20
"""How often a change is decided again when another registry has written in between."""
