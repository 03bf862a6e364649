import pytest

from oncelog_broker.config.broker_keys import BROKER_KEYS
from oncelog_broker.config.declared import (
    INT_MAX,
    LONG_MAX,
    ConfigKey,
    ConfigType,
    InvalidConfig,
    at_least,
    between,
    each_of,
    one_of,
    unknown_key,
)
from oncelog_broker.config.topic_keys import TOPIC_KEYS


def key_of(config_type, **kwargs):
    return ConfigKey("some.key", config_type, None, "doc", **kwargs)


@pytest.mark.parametrize(
    ("config_type", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.INT, " -7 ", -7),
        (ConfigType.INT, str(INT_MAX), INT_MAX),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.LONG, str(LONG_MAX), LONG_MAX),
        (ConfigType.DOUBLE, "0.5", 0.5),
        (ConfigType.STRING, " as it is ", "as it is"),
        (ConfigType.LIST, "a, b ,,c", ("a", "b", "c")),
        (ConfigType.LIST, "", ()),
    ],
)
def test_values_are_parsed_by_type(config_type, text, value):
    parsed = key_of(config_type).parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("config_type", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.BOOLEAN, ""),
        (ConfigType.INT, "5x"),
        (ConfigType.INT, ""),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "1.0"),
        (ConfigType.INT, str(INT_MAX + 1)),
        (ConfigType.INT, "9" * 10_000),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, str(LONG_MAX + 1)),
        (ConfigType.DOUBLE, "half"),
    ],
)
def test_bad_values_are_refused(config_type, text):
    with pytest.raises(InvalidConfig, match=r"some\.key: expected (a|true)"):
        key_of(config_type).parse(text)


@pytest.mark.parametrize(
    ("config_type", "allowed", "good", "bad", "words"),
    [
        (ConfigType.INT, at_least(1), "1", "0", "a 32-bit integer, at least 1"),
        (ConfigType.DOUBLE, between(0, 1), "1", "1.1", "a number, between 0 and 1"),
        (ConfigType.DOUBLE, between(0, 1), "0", "nan", "a number, between 0 and 1"),
        (ConfigType.STRING, one_of("a", "b"), "a", "A", "a string, one of a, b"),
        (ConfigType.LIST, each_of("a", "b"), "b,a", "a,c", "a comma-separated list, any of a, b"),
        (ConfigType.LIST, each_of("a", "b"), "", "c", "a comma-separated list, any of a, b"),
    ],
)
def test_allowed_values(config_type, allowed, good, bad, words):
    key = key_of(config_type, allowed=allowed)
    assert key.format(key.parse(good)) in (good, f"{float(good)}" if config_type is ConfigType.DOUBLE else good)
    with pytest.raises(InvalidConfig) as caught:
        key.parse(bad)
    assert str(caught.value) == f"Invalid value {bad!r} for configuration some.key: expected {words}"


def test_values_are_formatted_by_type():
    assert key_of(ConfigType.BOOLEAN).format(True) == "true"
    assert key_of(ConfigType.LIST).format(("a", "b")) == "a,b"
    assert key_of(ConfigType.LONG).format(None) is None
    assert key_of(ConfigType.LONG).format(-1) == "-1"


def test_a_password_is_never_shown():
    key = key_of(ConfigType.PASSWORD, allowed=one_of("right"))
    assert key.is_sensitive
    assert key.format("right") is None
    with pytest.raises(InvalidConfig) as caught:
        key.parse("secret")
    assert "secret" not in str(caught.value)


ALL_KEYS = [*BROKER_KEYS.values(), *(topic_key.key for topic_key in TOPIC_KEYS.values())]


def test_every_declared_default_is_allowed():
    changed = [
        key.name for key in ALL_KEYS if key.default is not None and key.parse(key.format(key.default)) != key.default
    ]
    assert changed == []


def test_every_declared_key_says_what_it_is_in_sentences():
    assert [key.name for key in ALL_KEYS if not key.doc.endswith(".")] == []


def test_unknown_key_names_the_nearest():
    assert (
        unknown_key("num.partition", BROKER_KEYS) == "Unknown configuration num.partition: did you mean num.partitions?"
    )
    assert unknown_key("zzz", BROKER_KEYS) == "Unknown configuration zzz"
