import pytest

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.config.listeners import (
    Listener,
    SecurityProtocol,
    advertised_listeners,
    has_brokers_only_listener,
    inter_broker_listener,
    listeners,
    with_bound_ports,
)

PLAINTEXT = SecurityProtocol.PLAINTEXT


def config(listen, advertise=None, protocols=None):
    texts = {"listeners": listen}
    if advertise is not None:
        texts["advertised.listeners"] = advertise
    if protocols is not None:
        texts["listener.security.protocol.map"] = protocols
    return BrokerConfig.of(texts)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://127.0.0.1:9092", "127.0.0.1", 9092),
        ("plaintext://Host-1.example:1", "Host-1.example", 1),
        ("PLAINTEXT://:0", "", 0),
        ("PLAINTEXT://0.0.0.0:65535", "0.0.0.0", 65535),
        ("PLAINTEXT://[::1]:9092", "::1", 9092),
    ],
)
def test_one_listener_is_parsed(text, host, port):
    (listener,) = listeners(config(text))
    assert listener == Listener("PLAINTEXT", PLAINTEXT, host, port)


def test_the_default_is_loopback():
    assert listeners(BrokerConfig()) == (Listener("PLAINTEXT", PLAINTEXT, "127.0.0.1", 9092),)
    assert advertised_listeners(BrokerConfig(), "me") == listeners(BrokerConfig())


def test_listeners_may_have_names_of_their_own():
    protocols = "INTERNAL:PLAINTEXT,EXTERNAL:plaintext"
    parsed = listeners(config("INTERNAL://a:1,EXTERNAL://b:2", protocols=protocols))
    assert [listener.name for listener in parsed] == ["INTERNAL", "EXTERNAL"]
    assert [str(listener) for listener in parsed] == ["INTERNAL://a:1", "EXTERNAL://b:2"]


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1:9092", "PLAINTEXT://a", "PLAINTEXT://a:", "PLAINTEXT://a:65536", "PLAINTEXT://a:-1", "PLAINTEXT://::1:1",
     "PLAINTEXT:a:1", "://a:1", "PLAINTEXT://a b:1", "PLAINTEXT://a:1/"],
)  # fmt: skip
def test_a_listener_without_an_address_is_refused(text):
    with pytest.raises(InvalidConfig, match=r"listeners: .* expected NAME://host:port"):
        listeners(config(text))


def test_a_listener_name_without_a_protocol_is_refused():
    with pytest.raises(InvalidConfig, match=r"INSIDE.*no security protocol; known: PLAINTEXT, SSL, SASL_"):
        listeners(config("INSIDE://a:1"))


def test_an_unsupported_protocol_is_refused():
    with pytest.raises(InvalidConfig, match="TELNET of listener SECURE is not served; served: PLAINTEXT, SSL,"):
        listeners(config("PLAINTEXT://a:1", protocols="PLAINTEXT:PLAINTEXT,SECURE:TELNET"))


def test_each_protocol_requires_its_settings():
    found = listeners(config("SSL://a:1,SASL_PLAINTEXT://a:2,SASL_SSL://a:3,INSIDE://a:4", protocols=ALL_PROTOCOLS))
    assert [(each.security_protocol.has_tls, each.security_protocol.has_sasl) for each in found] == [
        (True, False),
        (False, True),
        (True, True),
        (False, False),
    ]


ALL_PROTOCOLS = "SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,INSIDE:PLAINTEXT"


def test_the_inter_broker_listener_is_found_by_its_protocol():
    settings = {"listeners": "PLAINTEXT://a:1,SASL_SSL://a:2", "security.inter.broker.protocol": "SASL_SSL"}
    assert inter_broker_listener(BrokerConfig.of(settings)) == "SASL_SSL"
    assert has_brokers_only_listener(BrokerConfig.of(settings))
    with pytest.raises(InvalidConfig, match="set only one of them"):
        inter_broker_listener(BrokerConfig.of({**settings, "inter.broker.listener.name": "PLAINTEXT"}))
    with pytest.raises(InvalidConfig, match="no listener of that name is advertised"):
        inter_broker_listener(BrokerConfig.of({**settings, "security.inter.broker.protocol": "SSL"}))


def test_a_broken_protocol_map_is_refused():
    with pytest.raises(InvalidConfig, match="expected NAME:PROTOCOL"):
        listeners(config("PLAINTEXT://a:1", protocols="PLAINTEXT"))


def test_a_repeated_listener_name_or_port_is_refused():
    protocols = "A:PLAINTEXT,B:PLAINTEXT"
    with pytest.raises(InvalidConfig, match="two listeners have the same name"):
        listeners(config("A://a:1,A://a:2", protocols=protocols))
    with pytest.raises(InvalidConfig, match="same host and port"):
        listeners(config("A://a:1,B://a:1", protocols=protocols))
    assert len(listeners(config("A://a:0,B://a:0", protocols=protocols))) == 2


@pytest.mark.parametrize("every", ["", "0.0.0.0", "[::]"])
def test_every_interface_is_advertised_as_this_host(every):
    (advertised,) = advertised_listeners(config(f"PLAINTEXT://{every}:9092"), "me.example")
    assert str(advertised) == "PLAINTEXT://me.example:9092"


def test_advertised_listeners_are_taken_as_configured():
    (advertised,) = advertised_listeners(config("PLAINTEXT://:9092", "PLAINTEXT://public:19092"), "me")
    assert str(advertised) == "PLAINTEXT://public:19092"


@pytest.mark.parametrize(
    ("advertise", "words"),
    [
        ("PLAINTEXT://0.0.0.0:1", "not an address that a client can connect to"),
        ("PLAINTEXT://:1", "not an address that a client can connect to"),
        ("OTHER://a:1", "no listener of that name"),
        ("PLAINTEXT://a", "expected NAME://host:port"),
    ],
)
def test_bad_advertised_listeners_are_refused(advertise, words):
    broker = config("PLAINTEXT://:1", advertise, "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT")
    with pytest.raises(InvalidConfig, match=f"advertised.listeners: .*{words}"):
        advertised_listeners(broker, "me")


def test_port_0_becomes_the_port_that_was_bound():
    broker = config("A://:0,B://:9", protocols="A:PLAINTEXT,B:PLAINTEXT")
    advertised = with_bound_ports(advertised_listeners(broker, "me"), {"A": 40123, "B": 9})
    assert [str(listener) for listener in advertised] == ["A://me:40123", "B://me:9"]


def test_ipv6_is_written_in_brackets():
    assert str(Listener("A", PLAINTEXT, "::1", 1)) == "A://[::1]:1"


TWO = {
    "listeners": "INTERNAL://a:1,EXTERNAL://b:2",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}


@pytest.mark.parametrize(
    ("settings", "name", "brokers_only"),
    [
        ({}, "PLAINTEXT", False),
        ({"inter.broker.listener.name": "plaintext"}, "PLAINTEXT", False),
        (TWO, "INTERNAL", False),
        (TWO | {"inter.broker.listener.name": "EXTERNAL"}, "EXTERNAL", True),
        (TWO | {"listeners": "INTERNAL://a:1,PLAINTEXT://b:2"}, "PLAINTEXT", False),
    ],
)
def test_brokers_meet_at_the_inter_broker_listener(settings, name, brokers_only):
    config = BrokerConfig.of(settings)
    assert inter_broker_listener(config) == name
    assert has_brokers_only_listener(config) is brokers_only


def test_brokers_meet_where_one_is_advertised():
    settings = TWO | {"inter.broker.listener.name": "INTERNAL", "advertised.listeners": "EXTERNAL://b:2"}
    with pytest.raises(InvalidConfig, match=r"inter.broker.listener.name=INTERNAL: no such .* EXTERNAL://b:2"):
        inter_broker_listener(BrokerConfig.of(settings))
