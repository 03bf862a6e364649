"""The identity of a share partition: a group, and a partition of a topic. Pure."""

from __future__ import annotations

from typing import NamedTuple

from oncelog_protocol.uuids import uuid_from_string, uuid_to_string


class ShareKey(NamedTuple):
    """Identifies a share partition."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def text(self) -> str:
        """The key that determines the coordinator of the share partition, as in Kafka: `group:topicId:partition`."""
        return f"{self.group_id}:{uuid_to_string(self.topic_id)}:{self.partition}"

    @classmethod
    def of_text(cls, text: str) -> ShareKey:
        """Parse a coordinator key; the group id may contain colons. Raises ValueError."""
        parts = text.rsplit(":", 2)
        if len(parts) != 3 or not parts[0] or not parts[2].isdecimal():
            raise ValueError(f"no group:topicId:partition: {text[:300]!r}")
        return cls(parts[0], uuid_from_string(parts[1]), int(parts[2]))
