"""docs/reference/*-configuration.md: every key of brokers, topics and clients, of their declarations."""

from __future__ import annotations

import ast
import inspect
import json
import math
from dataclasses import MISSING, Field, fields
from typing import Any, Final, get_args

import oncelog.config
from docs_site.reference.markdown import cell, code, table
from oncelog.config import AdminConfig, Bounds, ClientConfig, ConsumerConfig, ProducerConfig, ShareConsumerConfig
from oncelog_broker.config.broker_keys import BROKER_KEYS
from oncelog_broker.config.declared import INT_MAX, LONG_MAX, ConfigKey, UpdateMode
from oncelog_broker.config.inert_topic_keys import INERT_TOPIC_KEYS
from oncelog_broker.config.topic_keys import TOPIC_KEYS, TopicKey

OF_BROKERS: Final = """\
This page lists every key of `oncelog serve`. Keys can be set in a file (`--config my.properties`, or TOML), in the
environment (`ONCELOG_NUM_PARTITIONS=3`), or on the command line (`--set num.partitions=3`). The command line overrides
the environment, and the environment overrides the file. Names are Kafka's, and so are defaults and meanings unless the
text says otherwise. An unknown key is refused at startup, because it would have no effect. A variable with our prefix
that resembles no key is ignored, because it may belong to another program: Kubernetes sets ONCELOG_PORT for a service
named oncelog. The broker logs a warning if the variable is not one that Kubernetes sets.

"Changes" says whether `oncelog configs` can change a value while brokers run: for one broker (`broker`), for all
brokers (`cluster`), or not at all (`restart`).
"""
OF_TOPICS: Final = """\
This page lists every key of a topic. Set a key with `oncelog topics create orders --config retention.ms=3600000`, or
with `oncelog configs set` for an existing topic. If a topic does not set a key, the broker key in the same row applies;
if the row has several broker keys, the first one that is set applies.
"""
INERT: Final = """\
## Keys without effect

Scripts written for Kafka set these keys, which have no effect here. Only values that promise no effect are accepted.
"""
OF_CLIENTS: Final = """\
This page lists the keyword arguments of `Producer`, `Consumer` and `Admin`: `Producer("127.0.0.1:9092", linger_ms=20)`.
They have the names of Kafka's keys, with underscores instead of dots, and Kafka's defaults. An unknown key or a bad
value raises `ConfigError` immediately. Times are in milliseconds, sizes in bytes.

Type checkers find misspelt options and values of another type, and editors complete option names. A function that
passes options on can declare their type: `def opened(**options: Unpack[ConsumerOptions])`, from
`oncelog.typed_options`.
"""
_CHANGES: Final = {
    UpdateMode.READ_ONLY: "restart",
    UpdateMode.PER_BROKER: "broker",
    UpdateMode.CLUSTER_WIDE: "cluster",
}


def of_brokers() -> str:
    rows = [
        [
            code(name),
            f"{_taken(key)}. Default: {_default(key)}. Changes: {_CHANGES[key.update_mode]}",
            cell(key.doc) or _for_topics(name),
        ]
        for name, key in sorted(BROKER_KEYS.items())
    ]
    return "\n".join(["# Configuration of brokers\n", OF_BROKERS, table(["Key", "Value", "Meaning"], rows)])


def _taken(key: ConfigKey[Any]) -> str:
    """What it takes; a choice that may be empty says so."""
    words = cell(key.expected).replace("one of , ", "empty, or one of ")
    return words[0].upper() + words[1:]


def _for_topics(broker_key: str) -> str:
    names = [name for name, topic in TOPIC_KEYS.items() if broker_key in [each.key.name for each in topic.synonyms]]
    return f"What topics without {', '.join(map(code, names))} have."


def _default(key: ConfigKey[Any]) -> str:
    if key.default is None:
        return "not set"
    shown = key.format(key.default)
    return code(shown) if shown else "empty"


def of_topics() -> str:
    inert = {key.name for key in INERT_TOPIC_KEYS}
    rows = [
        [code(name), f"{_taken(topic.key)}. Default: {_topic_default(topic)}{_fallbacks(topic)}", cell(topic.key.doc)]
        for name, topic in sorted(TOPIC_KEYS.items())
        if name not in inert
    ]
    without_effect = [
        [code(key.name), f"{_taken(key)}. Default: {_default(key)}", cell(key.doc)] for key in INERT_TOPIC_KEYS
    ]
    head = ["Key", "Value", "Meaning"]
    return "\n".join(["# Configuration of topics\n", OF_TOPICS, table(head, rows), INERT, table(head, without_effect)])


def _topic_default(topic: TopicKey) -> str:
    """The value if neither the topic nor a broker sets one."""
    if not topic.synonyms:
        return _default(topic.key)
    last = next(each for each in topic.synonyms if each.key.default is not None or each is topic.synonyms[-1])
    value = last.key.default if last.key.default is None else last.to_topic_value(last.key.default)
    shown = topic.key.format(value)
    return "not set" if shown is None else code(shown) if shown else "empty"


def _fallbacks(topic: TopicKey) -> str:
    names = ", ".join(code(each.key.name) for each in topic.synonyms)
    return f", or what the broker has: {names}" if names else ""


def of_clients() -> str:
    parts = ["# Configuration of clients\n", OF_CLIENTS]
    common = [field.name for field in fields(ClientConfig)]
    for title, config, left_out in (
        ("Every client", ClientConfig, ()),
        ("Producer", ProducerConfig, common),
        ("Consumer", ConsumerConfig, common),
        ("ShareConsumer", ShareConsumerConfig, common),
        ("Admin", AdminConfig, common),
    ):
        texts = field_texts(config)
        rows = [
            [code(field.name), _client_type(field), _client_default(field), _meaning(config, field, texts)]
            for field in fields(config)
            if field.name not in left_out
        ]
        parts += [f"## {title}\n", table(["Key", "Type", "Default", "Meaning"], rows)]
    return "\n".join(parts)


def _client_type(field: Field[Any]) -> str:
    """The declared type; for a choice, its values."""
    names = [name.strip() for name in str(field.type).split(" | ")]
    choices = [get_args(getattr(oncelog.config, name, None)) for name in names]
    return cell(" | ".join(_choice(name, values) for name, values in zip(names, choices, strict=True)))


def _choice(name: str, values: tuple[object, ...]) -> str:
    is_choice = bool(values) and all(isinstance(value, str | int) for value in values)
    return " | ".join(json.dumps(value) for value in values) if is_choice else name


def _client_default(field: Field[Any]) -> str:
    return "needed" if field.default is MISSING else code(repr(field.default))


def _meaning(config: type[ClientConfig], field: Field[Any], texts: dict[str, str]) -> str:
    """The text below the field, and its bounds."""
    words = [cell(texts[field.name])] if field.name in texts else []
    if (bounds := config.BOUNDS.get(field.name)) is not None:
        words.append(_bounds(bounds))
    return " ".join(words)


def _bounds(bounds: Bounds) -> str:
    unbounded = (INT_MAX, LONG_MAX, math.inf)
    return f"At least {bounds.low}." if bounds.high in unbounded else f"From {bounds.low} to {bounds.high}."


def field_texts(config: type[ClientConfig]) -> dict[str, str]:
    """The string below each field, of the class and of its base classes."""
    found: dict[str, str] = {}
    for each in reversed(config.__mro__):
        if not issubclass(each, ClientConfig):
            continue
        (declared,) = ast.parse(inspect.getsource(each)).body
        assert isinstance(declared, ast.ClassDef)
        for field, text in zip(declared.body, declared.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                found[field.target.id] = inspect.cleandoc(text.value.value)
    return found
