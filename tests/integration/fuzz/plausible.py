"""Creates requests that pass the broker's first checks, from the declarations; the name of a field decides its
value.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

from fuzz import odd_batches
from fuzz.world import World
from oncelog_protocol.api import ApiKey, request_type
from oncelog_protocol.codec import default_value
from oncelog_protocol.schema import FieldSchema, fields_of

CHANGING_TOPICS = (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS)
CONFIGS = (("retention.ms", "600000"), ("cleanup.policy", "compact"), ("segment.bytes", "x"), ("no.such.key", None))
PROTOCOLS = ("range", "roundrobin", "sticky")
"""Assignment protocols; the first is common to all members."""
NULL_SHARE = 0.1
Choice = Callable[["Plausible"], Any]


def _one_of(*values: Any) -> Choice:
    return lambda made: made.rng.choice(values)


BY_NAME: dict[str, Choice] = {
    "topic": lambda made: made.topic(),
    "topic_name": lambda made: made.topic(),
    "topic_names": lambda made: made.topic(),
    "resource_name": lambda made: made.topic(),
    "resource_type": _one_of(2, 2, 2, 2, 4),
    "group_id": lambda made: made.group,
    "groups": lambda made: made.group,
    "groups_names": lambda made: made.group,
    "member_id": lambda made: made.member,
    "generation_id": lambda made: made.generation,
    "generation_id_or_member_epoch": lambda made: made.generation,
    "group_instance_id": _one_of(None, None, "instance"),
    "protocol_type": _one_of("consumer"),
    "protocol_name": _one_of("range"),
    "key": lambda made: made.rng.choice((made.group, made.transactional_id)),
    "coordinator_keys": lambda made: made.rng.choice((made.group, made.transactional_id)),
    "key_type": _one_of(0, 1),
    "transactional_id": lambda made: made.transactional_id,
    "transactional_ids": lambda made: made.transactional_id,
    "v3_and_below_transactional_id": lambda made: made.transactional_id,
    "producer_id": lambda made: made.producer_id,
    "v3_and_below_producer_id": lambda made: made.producer_id,
    "producer_epoch": lambda made: made.producer_epoch,
    "v3_and_below_producer_epoch": lambda made: made.producer_epoch,
    "transactional_id_pattern": _one_of(None, ".*", "fuzz-(tx|ty)-[0-9]+"),
    "configuration_keys": _one_of("retention.ms", "cleanup.policy"),
    "session_timeout_ms": _one_of(500, 1000),
    "rebalance_timeout_ms": _one_of(50, 200),
    "retention_time_ms": _one_of(-1),
    "transaction_timeout_ms": _one_of(1000, 60_000),
    "max_wait_ms": _one_of(0, 0, 5),
    "timeout_ms": _one_of(1000),
    "min_bytes": _one_of(0, 1),
    "max_bytes": _one_of(1 << 20),
    "partition_max_bytes": _one_of(1 << 16),
    "session_id": _one_of(0),
    "session_epoch": _one_of(-1, -1, 0),
    "fetch_offset": _one_of(0, 0, 1, 50),
    "timestamp": _one_of(-1, -2, -3, 0, 1_700_000_000_001),
    "leader_epoch": _one_of(0, -1),
    "current_leader_epoch": _one_of(0, -1),
    "last_fetched_epoch": _one_of(-1),
    "replica_id": _one_of(-1),
    "acks": _one_of(-1, -1, 1, 0),
    "replication_factor": _one_of(1, -1),
    "num_partitions": _one_of(1, 2, -1),
    "count": _one_of(1, 2, 3),
    "assignments": _one_of(()),
    "offset": _one_of(0, 1, -1),
    "committed_offset": _one_of(0, 7),
    "isolation_level": _one_of(0, 1),
    "config_operation": _one_of(0, 1, 2, 3),
    "coordinator_epoch": _one_of(0, 1),
    "response_partition_limit": _one_of(2000),
    "cluster_id": _one_of(None),
    "entity_type": _one_of("user", "user", "client-id", "ip"),
    "entity_name": _one_of("fuzz", "nobody", "10.9.9.9", None),
    "match_type": _one_of(0, 1, 2),
    "match": _one_of("fuzz", None),
}
QUOTAS: dict[str, Choice] = {
    "key": _one_of("producer_byte_rate", "consumer_byte_rate", "request_percentage", "connection_creation_rate"),
    "value": _one_of(1e9),
}
"""Quotas so large that no client is throttled, because a throttled client could not show whether the broker delays
others.
"""


class Plausible:
    """Creates requests one after another. The requests use one producer and one group member throughout, as a client
    would.
    """

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng

    def request(self, key: ApiKey, version: int) -> Any:
        self.key, self.version = key, version
        self.protocols = itertools.cycle(PROTOCOLS)
        self.transactional_id, self.producer_id, self.producer_epoch = self.world.identity(self.rng)
        self.group, self.member, self.generation = self.world.member(self.rng)
        if key == ApiKey.PRODUCE and self.rng.random() < 0.7:
            self.transactional_id = None  # most Produce requests of the fuzzer belong to no transaction
        return self._struct(request_type(key))

    def topic(self) -> str:
        return self.rng.choice(self.world.made if self.key in CHANGING_TOPICS else self.world.topics)

    def _struct(self, cls: type) -> Any:
        return cls(**{field.name: self._field(cls, field) for field in fields_of(cls)})

    def _field(self, cls: type, field: FieldSchema) -> Any:
        if self.version not in field.versions:
            return default_value(field)
        if field.name == "name":
            return self._name(cls)
        if field.type_name == "array" and field.name != "assignments":
            if self.version in field.nullable and self.rng.random() < NULL_SHARE:
                return None
            return [self._element(field) for _ in range(self.rng.choice((0, 1, 1, 1, 1, 2, 3)))]
        if field.type_name == "array" and self.key == ApiKey.SYNC_GROUP:
            return [self._element(field)]
        chosen = (QUOTAS if self.key == ApiKey.ALTER_CLIENT_QUOTAS else {}).get(field.name) or BY_NAME.get(field.name)
        if chosen is not None:
            return self._fitting(field, chosen(self))
        if field.name == "value":
            return self._fitting(field, self.rng.choice(CONFIGS)[1])
        if field.type_name == "struct":
            return self._nested(field)
        return self._primitive(field.type_name)

    def _fitting(self, field: FieldSchema, value: Any) -> Any:
        if field.type_name == "array":
            return list(value)
        return "" if value is None and self.version not in field.nullable else value

    def _name(self, cls: type) -> str:
        beside = {field.name for field in fields_of(cls)}
        if "value" in beside:
            return self.rng.choice(CONFIGS)[0]
        return next(self.protocols) if "metadata" in beside else self.topic()

    def _nested(self, field: FieldSchema) -> Any:
        assert field.struct is not None
        is_optional = self.version in field.nullable or self.version in field.tagged
        return None if is_optional and self.rng.random() < 0.7 else self._struct(field.struct)

    def _element(self, field: FieldSchema) -> Any:
        assert field.element is not None
        if field.element.struct is not None:
            return self._struct(field.element.struct)
        chosen = BY_NAME.get(field.name)
        return self._primitive(field.element.type_name) if chosen is None else chosen(self)

    def _primitive(self, kind: str) -> Any:
        rng = self.rng
        if kind == "boolean":
            return rng.random() < 0.5
        if kind == "string":
            return rng.choice(("a", "fuzz", "Stable", "Empty", "Ongoing"))
        if kind == "bytes":
            return rng.randbytes(rng.randrange(20))
        if kind == "records":
            return odd_batches.good(rng, self.producer_id, self.producer_epoch, self.transactional_id is not None)
        if kind == "uuid":
            return rng.choice((*self.world.topic_ids, bytes(16)))
        if kind == "float64":
            return rng.random()
        return rng.choice((0, 0, 0, 1, 2))
