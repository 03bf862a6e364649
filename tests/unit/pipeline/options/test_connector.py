"""The table has an entry for each option of Spark's own Kafka connector, and the code behaves as the table says."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from tests.interop.kafka_client_keys import RELEASES, TABLE

from oncelog.config import ConsumerConfig, ProducerConfig
from oncelog_pipeline.options import security_settings, sink_options, source_options
from oncelog_pipeline.options.connector import (
    OF_SPARK,
    Answer,
    ConnectorOption,
    Side,
    connector_options,
)
from oncelog_pipeline.options.reading import OptionError

SERVERS = "kafka.bootstrap.servers"
OURS = {"stateTopic", "delivery", "writeId", "maxBytesPerTrigger"}
OUR_CLIENTS = {"check.hostname", "cafile", "certfile", "keyfile", "password", "context"}
"""oncelog's own ssl_* options, which name PEM files."""
SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
NEEDS = {"kafka.sasl.mechanism": {"kafka.security.protocol": "PLAINTEXT"}}
OPTIONS = list(connector_options())


def is_batch(option: ConnectorOption) -> bool:
    return option.name in source_options.FOR_BATCHES


def made(option: ConnectorOption, side: Side, value: str) -> Any:
    given = {SERVERS: "a:1", **NEEDS.get(option.name, {}), option.name: value}
    if side is Side.SINK:
        return sink_options.sink_options(given)
    if option.name not in SUBSCRIPTIONS:
        given["subscribe"] = "orders"
    return source_options.source_options(given, is_stream=not is_batch(option))


def sides(option: ConnectorOption) -> list[Side]:
    return [Side.SOURCE, Side.SINK] if option.side is Side.BOTH else [option.side]


WALKED = [(option, side) for option in OPTIONS for side in sides(option)]
NAMES = [f"{option.name}-{side.value}" for option, side in WALKED]


@pytest.mark.parametrize(("option", "side"), WALKED, ids=NAMES)
def test_an_option_is_accepted_or_refused_as_the_table_says(option: ConnectorOption, side: Side) -> None:
    if option.answer is Answer.REFUSED:
        with pytest.raises(OptionError, match="cannot be set here") as caught:
            made(option, side, "1")
        assert option.text
        assert option.text in str(caught.value)
    elif option.example or option.name == security_settings.HOSTNAMES:
        made(option, side, option.example)
    else:
        # This test omits options that need a file or other options; test_security_settings.py tests those options.
        assert option.name in security_settings.KNOWN


@pytest.mark.parametrize(
    "option", [each for each in OPTIONS if each.answer is Answer.DIFFERS], ids=lambda each: each.name
)
def test_a_difference_is_said(option: ConnectorOption) -> None:
    assert option.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.acks", "1"),
        ("kafka.enable.idempotence", "false"),
        ("kafka.retries", "0"),
        ("kafka.max.in.flight.requests.per.connection", "6"),
    ],
)
def test_a_value_that_no_delivery_can_do_with_is_refused(name: str, value: str) -> None:
    option = next(each for each in OPTIONS if each.name == name)
    with pytest.raises(OptionError, match="idempotence"):
        made(option, Side.SINK, value)


def test_the_table_has_each_option_once() -> None:
    names = [each.name.lower() for each in OPTIONS]
    assert sorted(set(names)) == sorted(names)


def test_options_beyond_the_table_are_our_own() -> None:
    listed = {each.name for each in OF_SPARK}
    assert {*source_options.KNOWN, *sink_options.KNOWN} - listed == OURS
    assert set(security_settings.KNOWN) <= {each.name for each in OPTIONS}


@pytest.mark.parametrize(("config", "side"), [(ConsumerConfig, Side.SOURCE), (ProducerConfig, Side.SINK)])
def test_each_key_of_our_clients_is_in_the_table(config: Any, side: Side) -> None:
    ours = {"kafka." + field.name.replace("_", ".") for field in fields(config)}
    ours -= {f"kafka.ssl.{each}" for each in OUR_CLIENTS}
    ours -= {"kafka.sasl.plain.username", "kafka.sasl.plain.password", "kafka.sasl.oauth.token.provider"}
    ours -= {"kafka.tracing", "kafka.max.decompressed.bytes", "kafka.two.phase.commit"}
    ours -= {"kafka.interceptors", "kafka.partitioner"}  # Python objects, which an option in text form cannot express
    listed = {option.name for option, of in WALKED if of is side}
    assert ours - listed == set()


def test_each_key_of_javas_clients_is_in_the_table_and_no_other() -> None:
    """The keys are those that the configuration classes of Apache Kafka list."""
    real = json.loads(TABLE.read_text())
    assert real["releases"] == list(RELEASES)
    for kind, side in (("consumer", Side.SOURCE), ("producer", Side.SINK)):
        listed = {option.name for option, of in WALKED if of is side and option.name.startswith("kafka.")}
        assert listed == {f"kafka.{key}" for key in real[kind]}


def test_a_key_without_its_prefix_is_recognized() -> None:
    with pytest.raises(OptionError, match=r"did you mean 'kafka\.bootstrap\.servers'"):
        sink_options.sink_options({"bootstrap.servers": "a:1"})
    with pytest.raises(OptionError, match=r"did you mean 'kafka\.sasl\.jaas\.config'"):
        sink_options.sink_options({"sasl.jaas.config": "a:1"})


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("100k", 102400), ("10m", 10 << 20), ("1g", 1 << 30), ("2KB", 2048)]
)
def test_a_batch_may_have_a_size_in_bytes(text: str, size: int) -> None:
    given = {SERVERS: "a:1", "subscribe": "orders", "maxBytesPerTrigger": text}
    assert source_options.source_options(given, is_stream=True).max_bytes_per_trigger == size


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5g"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    given = {SERVERS: "a:1", "subscribe": "orders", "maxBytesPerTrigger": text}
    with pytest.raises(OptionError, match="must be a size such as"):
        source_options.source_options(given, is_stream=True)


def test_a_client_id_wins_over_a_group_and_a_group_over_a_prefix() -> None:
    def label(**options: str) -> object:
        given = {SERVERS: "a:1", "subscribe": "orders", **options}
        return source_options.source_options(given, is_stream=True).settings["client_id"]

    every = {"groupIdPrefix": "prefix", "kafka.group.id": "group", "kafka.client.id": "client"}
    assert label(**every) == "client"
    assert label(**{name: every[name] for name in ("kafka.group.id", "groupIdPrefix")}) == "group"
    assert label(groupIdPrefix="prefix") == "prefix"
