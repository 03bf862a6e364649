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
def test_a_senseless_setting_is_refused_by_name(cls: Any, options: dict[str, Any], message: str) -> None:
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
def test_bootstrap_addresses_are_parsed(servers: Any, addresses: list[tuple[str, int]]) -> None:
    assert load(AdminConfig, servers, {}).bootstrap_addresses() == addresses


@pytest.mark.parametrize("servers", ["", "a:0", "a:x", ":9092", "a:70000", []])
def test_bad_bootstrap_servers_are_refused(servers: Any) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        load(AdminConfig, servers, {})


def test_every_bound_belongs_to_a_key() -> None:
    keys = {field.name for cls in (ProducerConfig, ConsumerConfig, AdminConfig) for field in dataclasses.fields(cls)}
    bounds = {*ProducerConfig.BOUNDS, *ConsumerConfig.BOUNDS, *AdminConfig.BOUNDS}
    assert bounds <= keys


def test_a_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        load(ProducerConfig, SERVERS, {}).acks = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "is_idempotent"),
    [
        ({}, True),
        ({"enable_idempotence": True}, True),
        ({"enable_idempotence": False}, False),
        ({"acks": -1}, True),
        ({"acks": 1}, False),
        ({"acks": "0"}, False),
        ({"retries": 0}, False),
        ({"retries": 1}, True),
        ({"max_in_flight_requests_per_connection": 5}, True),
        ({"max_in_flight_requests_per_connection": 6}, False),
        ({"transactional_id": "t"}, True),
        ({"transactional_id": "t", "enable_idempotence": True}, True),
    ],
)
def test_s14_idempotence_is_on_where_the_other_settings_allow_it(options: dict[str, Any], is_idempotent: bool) -> None:
    assert load(ProducerConfig, SERVERS, options).is_idempotent is is_idempotent


@pytest.mark.parametrize("wish", [{"enable_idempotence": True}, {"transactional_id": "t"}])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acks": 1}, r"acks=1: must be 'all', as (idempotence needs|transactions need) it"),
        ({"acks": 0}, r"acks=0: must be 'all', as (idempotence needs|transactions need) it"),
        ({"retries": 0}, r"retries=0: must be above 0, as (idempotence needs|transactions need) it"),
        (
            {"max_in_flight_requests_per_connection": 6},
            r"max_in_flight_requests_per_connection=6: must be at most 5, as (idempotence needs|transactions need) it",
        ),
    ],
)
def test_s14_settings_against_idempotence_are_refused(
    wish: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(ProducerConfig, SERVERS, {**wish, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"enable_idempotence": "yes"}, "enable_idempotence='yes': must be True, False or None"),
        ({"enable_idempotence": 1}, "enable_idempotence=1: must be True, False or None"),
        ({"enable_idempotence": 0}, "enable_idempotence=0: must be True, False or None"),
        ({"transactional_id": ""}, "transactional_id='': must not be empty"),
        ({"transactional_id": b"t"}, "transactional_id=b't': must be a str"),
        ({"transactional_id": "\ud800"}, "cannot be said in UTF-8"),
        ({"client_id": "\ud800"}, "cannot be said in UTF-8"),
        ({"client_id": "x" * 2**15}, "must be at most 32767 bytes"),
        ({"transactional_id": "t", "enable_idempotence": False}, "enable_idempotence=False: transactions"),
        ({"transactional_id": "t", "transaction_timeout_ms": 0}, "transaction_timeout_ms=0: must be an integer from 1"),
    ],
)
def test_s14_nonsense_about_idempotence_and_transactions_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(ProducerConfig, SERVERS, options)
