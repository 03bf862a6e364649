"""Entities and values of quotas are parsed, and malformed ones are refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from oncelog_broker.metadata.model.quotas import MAX_NAME_CHARS
from oncelog_broker.server.access.quota_fields import checked_value, entity_of, parts_of
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.quotas import DEFAULT, QuotaEntity


class Part(NamedTuple):
    entity_type: str
    entity_name: str | None


USER, ADDRESS = QuotaEntity("alice", None, None), QuotaEntity(None, None, "10.0.0.1")


@pytest.mark.parametrize(
    ("parts", "entity"),
    [
        ([("user", "alice")], USER),
        ([("user", None)], QuotaEntity(DEFAULT, None, None)),
        ([("client-id", "etl"), ("user", "alice")], QuotaEntity("alice", "etl", None)),
        ([("ip", "::ffff:10.0.0.1")], ADDRESS),
    ],
)
def test_quota_entities_are_parsed(parts: list[Any], entity: QuotaEntity) -> None:
    assert entity_of(Part(*part) for part in parts) == entity
    assert entity_of(Part(*part) for part in parts_of(entity)) == entity


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("user", "alice"), ("user", "bob")],
        [("planet", "earth")],
        [("user", "")],
        [("user", "u" * (MAX_NAME_CHARS + 1))],
        [("ip", "10.0.0.1"), ("user", "alice")],
        [("ip", "localhost")],
    ],
)
def test_malformed_quota_entities_are_refused(parts: list[Any]) -> None:
    with pytest.raises(KafkaError) as refused:
        entity_of(Part(*part) for part in parts)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("entity", "key", "value", "kept"),
    [
        (USER, "producer_byte_rate", 1000.0, "1000"),
        (USER, "request_percentage", 12.5, "12.5"),
        (ADDRESS, "connection_creation_rate", 2.0**31 - 1, "2147483647"),
        (USER, "consumer_byte_rate", 2.0**63, None),
        (ADDRESS, "connection_creation_rate", 2.0**31, None),
        (USER, "producer_byte_rate", 1.5, None),
        (USER, "producer_byte_rate", 0.0, None),
        (USER, "request_percentage", float("nan"), None),
        (USER, "request_percentage", float("inf"), None),
        (USER, "connection_creation_rate", 1.0, None),  # this key applies only to addresses
        (ADDRESS, "producer_byte_rate", 1.0, None),
        (USER, "no_such_key", 1.0, None),
    ],
)
def test_quota_values_are_parsed(entity: QuotaEntity, key: str, value: float, kept: str | None) -> None:
    if kept is not None:
        assert checked_value(entity, key, value) == kept
        return
    with pytest.raises(KafkaError) as refused:
        checked_value(entity, key, value)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
