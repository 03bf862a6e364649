"""Keeps the names and identities that requests use: existing names, assigned ids, and values from the broker's
responses.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from raw_client import RawClient
from raw_transactions import RawTransactions

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.api_versions import ApiVersionsRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.versions import VersionRange

METADATA_VERSION = 12
FIRST_PRODUCE_VERSION = 3


@dataclass
class World:
    """`made` are the topics that requests create and delete; the requests keep all other topics."""

    topics: tuple[str, ...] = ("fuzz-plain", "fuzz-plain", "fuzz-compacted", "__consumer_offsets", "fuzz-missing")
    made: tuple[str, ...] = tuple(f"fuzz-made-{number}" for number in range(8))
    groups: tuple[str, ...] = ("fuzz-group-0", "fuzz-group-1", "fuzz-group-2")
    transactional_ids: tuple[str, ...] = ("fuzz-tx-0", "fuzz-tx-1")
    topic_ids: list[bytes] = field(default_factory=list)
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Transactional id -> producer id and epoch."""
    members: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Group -> member id and generation."""
    served: dict[int, VersionRange] = field(default_factory=dict)

    def prepare(self, port: int) -> None:
        """Create the topics, find the coordinators, and request the served APIs."""
        with RawClient(port) as client:
            client.create_topic("fuzz-plain", 3)
            client.create_topic(
                "fuzz-compacted", 1, cleanup_policy="compact", segment_bytes="100000", min_cleanable_dirty_ratio="0.01"
            )
            for name in self.transactional_ids:
                producer = RawTransactions(client, name).take_over()
                self.producers[name] = (producer.producer_id, producer.epoch)
            metadata = client.call(MetadataRequest(topics=None), ApiKey.METADATA, METADATA_VERSION)
            self.topic_ids = [topic.topic_id for topic in metadata.topics if topic.name in self.topics]
            for api in client.call(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0).api_keys:
                # The broker advertises versions 0 to 2 of Produce for old clients, but refuses them.
                low = max(api.min_version, FIRST_PRODUCE_VERSION if api.api_key == ApiKey.PRODUCE else 0)
                self.served[api.api_key] = VersionRange(low, api.max_version)

    def routes(self) -> list[tuple[ApiKey, int]]:
        """Return every served API at every version."""
        return [
            (ApiKey(key), version)
            for key, versions in sorted(self.served.items())
            for version in range(versions.low, versions.high + 1)
        ]

    def identity(self, rng: random.Random) -> tuple[str, int, int]:
        """Return a transactional id, with its last known producer id and epoch."""
        name = rng.choice(self.transactional_ids)
        return (name, *self.producers.get(name, (-1, -1)))

    def member(self, rng: random.Random) -> tuple[str, str, int]:
        """Return a group, with its last known member and generation."""
        group = rng.choice(self.groups)
        return (group, *self.members.get(group, ("", -1)))

    def learn(self, key: ApiKey, request: Any, answer: Any) -> None:
        """Store values from a response, so that later requests pass more checks."""
        if key == ApiKey.INIT_PRODUCER_ID and answer.error_code == 0:
            if request.transactional_id in self.transactional_ids:
                self.producers[request.transactional_id] = (answer.producer_id, answer.producer_epoch)
        elif key == ApiKey.JOIN_GROUP and answer.error_code == 0 and request.group_id in self.groups:
            self.members[request.group_id] = (answer.member_id, answer.generation_id)
