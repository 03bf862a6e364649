"""The limits of the registry. A request that exceeds a limit is refused with a message that names the limit."""

from __future__ import annotations

from typing import Final

MAX_BODY_BYTES: Final = 2 * 1024 * 1024
"""Limit in bytes on the body of a request."""
MAX_SCHEMA_BYTES: Final = 900_000
"""Limit in bytes on a schema with its references, encoded as JSON (each quote takes two bytes). A record of this size
fits into the default `max.message.bytes` of a topic.
"""
MAX_SUBJECT_CHARACTERS: Final = 255
MAX_REFERENCES: Final = 100
"""Limit on the number of schemas to which one schema may refer, directly and indirectly."""
MAX_SCHEMA_DEPTH: Final = 100
"""Limit on the nesting of a schema's JSON document."""
BODY_SECONDS: Final = 20.0
"""Seconds in which a client must send the body of a request."""
CHECK_SECONDS: Final = 30.0
"""Seconds in which a schema must be parsed and compared with the earlier versions."""
PROTOC_SECONDS: Final = 20.0
"""Seconds in which the Protobuf compiler must finish."""
MAX_CHECKS: Final = 4
"""Limit on the schemas that are parsed and compared concurrently; further schemas wait."""
CATCH_UP_SECONDS: Final = 20.0
"""Seconds in which the registry must read the topic to its end for a request."""
WRITE_ATTEMPTS: Final = 20
"""Limit on the attempts to write a change; another attempt is necessary each time another registry has written in
between.
"""
