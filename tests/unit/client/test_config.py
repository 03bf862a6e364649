import dataclasses
from typing import Any

import pytest

from oncelog.config import AdminConfig, ConsumerConfig, ProducerConfig, load
from oncelog.errors import ConfigError

SERVERS = "127.0.0.1:9092"


def test_defaults_are_kafkas() -> None:
    producer = load(ProducerConfig, SERVERS, {})
    assert (producer.required_acks, producer.batch_size, producer.linger_ms) == (-1, 16_384, 5)
    consumer = load(ConsumerConfig, SERVERS, {})
    assert (consumer.auto_offset_reset, consumer.max_poll_records) == ("latest", 500)


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (ProducerConfig, {"acks": 2}, "acks=2: must be one of all, -1, 0, 1"),
        (ProducerConfig, {"acks": True}, "acks=True"),
        (ProducerConfig, {"linger_ms": -1}, "linger_ms=-1: must be an integer from 0"),
        (ProducerConfig, {"linger_ms": 1.5}, "linger_ms=1.5"),
        (ProducerConfig, {"batch_size": True}, "batch_size=True"),
        (ProducerConfig, {"compression_type": "lzma"}, "compression_type='lzma': must be one of none, gzip"),
        (ProducerConfig, {"delivery_timeout_ms": 100}, "must be at least linger_ms + request_timeout_ms"),
        (ProducerConfig, {"enable_idempotence": 0}, "enable_idempotence=0: must be True, False or None"),
        (ProducerConfig, {"lingr_ms": 5}, "unknown key 'lingr_ms': did you mean 'linger_ms'?"),
        (ProducerConfig, {"max_in_flight_requests_per_connection": 0}, "max_in_flight_requests_per_connection=0"),
        (ConsumerConfig, {"auto_offset_reset": "first"}, "must be one of earliest, latest, none"),
        (ConsumerConfig, {"isolation_level": 1}, "isolation_level=1"),
        (ConsumerConfig, {"fetch_max_wait_ms": 30_000}, "must be below request_timeout_ms"),
        (AdminConfig, {"retry_backoff_ms": 2000}, "retry_backoff_ms=2000: must be at most retry_backoff_max_ms"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(cls: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("+", r"\+").replace("?", r"\?")):
        load(cls, SERVERS, options)


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("a:1", [("a", 1)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        (["a", "[::1]:3"], [("a", 9092), ("::1", 3)]),
        ("[fe80::1]", [("fe80::1", 9092)]),
    ],
)
def test_bootstrap_addresses(servers: Any, addresses: list[tuple[str, int]]) -> None:
    assert load(AdminConfig, servers, {}).bootstrap_addresses() == addresses


@pytest.mark.parametrize("servers", ["", "a:0", "a:x", ":9092", "a:70000", []])
def test_bad_bootstrap_servers(servers: Any) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        load(AdminConfig, servers, {})


def test_every_bound_belongs_to_a_key() -> None:
    keys = {field.name for cls in (ProducerConfig, ConsumerConfig, AdminConfig) for field in dataclasses.fields(cls)}
    bounds = {*ProducerConfig.BOUNDS, *ConsumerConfig.BOUNDS, *AdminConfig.BOUNDS}
    assert bounds <= keys


def test_a_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        load(ProducerConfig, SERVERS, {}).acks = 1  # type: ignore[misc]
