"""kafka.*: the configuration of our clients in Kafka's spelling, kafka.fetch.max.bytes for fetch_max_bytes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any, Final

from oncelog.config import ClientConfig, ConsumerConfig, ProducerConfig
from oncelog.errors import ConfigError
from oncelog_pipeline.options.reading import PREFIX, OptionError, Options, as_setting

SERVERS: Final = "kafka.bootstrap.servers"

REFUSED: Final[Mapping[str, str]] = {
    "kafka.auto.offset.reset": "where a query begins is said with startingOffsets",
    "kafka.key.deserializer": "keys come as binary: cast or decode the column",
    "kafka.value.deserializer": "values come as binary: cast or decode the column",
    "kafka.key.serializer": "keys are binary or strings: encode the column",
    "kafka.value.serializer": "values are binary or strings: encode the column",
    "kafka.enable.auto.commit": "the progress of a query is in its checkpoint",
    "kafka.interceptor.classes": "interceptors are Java classes",
    "kafka.transactional.id": "each task has one of its own; a batch job has its writeId",
}
LABELS: Final = ("kafka.group.id", "kafka.client.id")
"""No group is joined: they only say in the broker's log who asks."""


def bootstrap_servers(options: Options) -> str:
    """Raises OptionError."""
    servers = options.kafka.get(SERVERS, "").strip()
    if not servers:
        raise OptionError(f"{SERVERS} is missing: host:port of one broker or more, with commas between them")
    return servers


def settings(options: Options, config: type[ClientConfig]) -> dict[str, Any]:
    """The keywords of `config`, a Consumer's or a Producer's, that the options have. Raises OptionError."""
    defaults = {field.name: field.default for field in fields(config) if field.default is not MISSING}
    known = {PREFIX + name.replace("_", "."): name for name in defaults}
    found: dict[str, Any] = {}
    for name, value in options.kafka.items():
        if name in REFUSED:
            raise OptionError(f"{name} is not for you to set: {REFUSED[name]}")
        if name == SERVERS:
            continue
        if name in LABELS:
            found.setdefault("client_id", value)
            continue
        if name not in known:
            near = get_close_matches(name, [*known, SERVERS], n=1)
            raise OptionError(f"unknown option {name!r}" + (f": did you mean {near[0]!r}?" if near else ""))
        default = defaults[known[name]]
        # What is None or several by default: a flag where it says so, else text.
        like = False if known[name] == "enable_idempotence" else default
        found[known[name]] = as_setting(name, value, like)
    check_together(options, config, found)
    return found


def common(found: Mapping[str, Any]) -> dict[str, Any]:
    """Those that every client of ours knows."""
    shared = {field.name for field in fields(ClientConfig)}
    return {name: value for name, value in found.items() if name in shared}


def check_together(options: Options, config: type[ClientConfig], found: Mapping[str, Any]) -> None:
    """Have the client itself look at the values. Raises OptionError."""
    servers = bootstrap_servers(options)
    try:
        config(bootstrap_servers=servers, **found).validate()
    except ConfigError as error:
        raise OptionError(f"kafka.*: {error.message}") from error


CONSUMER: Final = ConsumerConfig
PRODUCER: Final = ProducerConfig
