"""Creates well-formed requests of every API and version from the declarations; a seed determines many plausible
requests.

The name of a field determines its value, so that requests get far in the handlers before they are refused. Some topics
exist and some do not, partition numbers are near the existing ones, and batches are valid, empty, in old formats or
from an idempotent producer.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raw_client import frame

from oncelog_protocol.api import ApiKey, request_type
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record
from oncelog_protocol.schema import FieldSchema, fields_of
from oncelog_protocol.versions import VersionRange

ADMIN_KEYS = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
)
"""APIs that change topics; few requests of the corpus use them, and those requests set validate_only where possible."""

CONFIGS = (("retention.ms", "60000"), ("cleanup.policy", "compact"), ("segment.bytes", "x"), ("no.such.key", None))


@dataclass(frozen=True)
class World:
    """The names of topics, groups and other resources that requests use."""

    topics: tuple[str, ...]
    missing_topics: tuple[str, ...]
    topic_ids: Mapping[str, bytes]

    def topic(self, rng: random.Random) -> str:
        return rng.choice(self.topics) if rng.random() < 0.8 else rng.choice(self.missing_topics)

    def topic_id(self, rng: random.Random) -> bytes:
        return rng.choice(list(self.topic_ids.values())) if rng.random() < 0.8 else rng.randbytes(16)


class RequestMaker:
    """Creates requests of one API at one version."""

    def __init__(self, key: ApiKey, version: int, world: World, rng: random.Random) -> None:
        self.key = key
        self.version = version
        self.world = world
        self.rng = rng

    def frame(self) -> bytes:
        request = self._struct(request_type(self.key))
        return frame(request, self.key, self.version, self.rng.randrange(1 << 16), "fuzz")

    def _struct(self, cls: type) -> Any:
        values = {}
        for field in fields_of(cls):
            if self.version in field.versions or not field.has_default:
                values[field.name] = self._value(field)
        return cls(**values)

    def _value(self, field: FieldSchema) -> Any:
        named = NAMED_FIELDS.get(field.name)
        if named is not None:
            value = named(self)
            is_absent = value is None and field.type_name == "string" and self.version not in field.nullable
            return "tx" if is_absent else value
        if self.version in field.nullable and self.rng.random() < 0.2:
            return None
        if field.type_name == "array":
            assert field.element is not None
            return [self._element(field.element) for _ in range(self.rng.choice((0, 1, 1, 1, 2, 3)))]
        if field.type_name == "struct":
            assert field.struct is not None
            return self._struct(field.struct)
        return self._primitive(field.type_name)

    def _element(self, element: FieldSchema) -> Any:
        if element.struct is not None:
            return self._struct(element.struct)
        return self._primitive(element.type_name)

    def _primitive(self, kind: str) -> Any:
        if kind == "boolean":
            return self.rng.random() < 0.5
        if kind == "string":
            return self.world.topic(self.rng)
        if kind == "bytes":
            return self.rng.randbytes(self.rng.randrange(20))
        if kind == "records":
            return self.batch()
        if kind == "uuid":
            return self.world.topic_id(self.rng)
        if kind == "float64":
            return self.rng.random()
        return self.rng.choice((0, 0, 1, 2, 3, 100)) if "u" in kind else self.rng.choice((-1, 0, 0, 1, 2, 3, 100))

    def batch(self) -> bytes:
        rng = self.rng
        if rng.random() < 0.05:
            return b""
        records = [
            Record(0, 1_700_000_000_000 + index, rng.choice((None, b"k")), rng.randbytes(rng.randrange(30)), [])
            for index in range(rng.randint(1, 4))
        ]
        stamp: dict[str, Any] = {}
        if rng.random() < 0.3:  # use few producer ids, so that the broker's state of producers stays small
            stamp = {"producer_id": rng.randrange(20), "producer_epoch": 0, "base_sequence": rng.randrange(3)}
        return bytes(build_batch(records, compression=Compression(rng.choice((0, 0, 1, 2, 3, 4))), **stamp))


def _configs(maker: RequestMaker) -> list[Any] | None:
    """Return entries of the configuration class that the API uses."""
    for cls in _nested_classes(request_type(maker.key)):
        fields = {field.name for field in fields_of(cls)}
        if "value" in fields and "name" in fields:
            chosen = maker.rng.sample(CONFIGS, maker.rng.randrange(3))
            extra = {"config_operation": maker.rng.randrange(5)} if "config_operation" in fields else {}
            return [cls(name=name, value=value, **extra) for name, value in chosen]
    return []


def _one_of(*values: Any) -> Any:
    return lambda maker: maker.rng.choice(values)


NAMED_FIELDS: dict[str, Any] = {
    "topic": lambda maker: maker.world.topic(maker.rng),
    "topic_name": lambda maker: maker.world.topic(maker.rng),
    "name": lambda maker: maker.world.topic(maker.rng) if maker.rng.random() < 0.9 else maker.rng.choice(CONFIGS)[0],
    "resource_name": lambda maker: maker.world.topic(maker.rng),
    "resource_type": _one_of(2, 2, 2, 0, 8, 127),
    "configs": _configs,
    "topic_id": lambda maker: maker.world.topic_id(maker.rng),
    "partition": _one_of(0, 0, 1, 2, 3, -1),
    "index": _one_of(0, 0, 1, 2, 3, -1),
    "partition_index": _one_of(0, 0, 1, 2, 3, -1),
    "fetch_offset": _one_of(0, 0, 1, 5, 1000, -1),
    "offset": _one_of(0, 1, -1, 1 << 40),
    "timestamp": _one_of(-1, -2, -3, -4, -5, -6, 0, 1_700_000_000_001, 1 << 62),
    "partition_max_bytes": _one_of(0, 1, 1000, 1 << 20),
    "max_bytes": _one_of(0, 1, 1000, 1 << 20, (1 << 31) - 1),
    "max_wait_ms": _one_of(0, 0, 0, 1, 5),
    "timeout_ms": _one_of(0, 1, 1000),
    "min_bytes": _one_of(0, 1, 1000),
    "replica_id": _one_of(-1, -1, -1, -1, 0),
    "replica_state": _one_of(None),
    "validate_only": _one_of(True),
    "num_partitions": _one_of(-1, 0, 1, 3),
    "count": _one_of(0, 1, 2, 4),
    "replication_factor": _one_of(-1, 1, 1, 2),
    "acks": _one_of(-1, -1, 1, 1, 0, 5),
    "transactional_id": _one_of(None, None, None, "tx"),
    "transaction_timeout_ms": _one_of(1000, 60_000, -1),
}


def _nested_classes(cls: type) -> list[type]:
    found = []
    for field in fields_of(cls):
        struct = field.struct or (field.element.struct if field.element else None)
        if struct is not None:
            found += [struct, *_nested_classes(struct)]
    return found


def corpus(
    served: Mapping[int, VersionRange], world: World, rng: random.Random, *, per_version: int, admin_per_version: int
) -> list[bytes]:
    """Return frames of every served API and version."""
    frames = []
    for key, versions in served.items():
        for version in range(versions.low, versions.high + 1):
            maker = RequestMaker(ApiKey(key), version, world, rng)
            count = admin_per_version if key in ADMIN_KEYS else per_version
            frames += [maker.frame() for _ in range(count)]
    rng.shuffle(frames)
    return frames
