"""Converts the options kafka.* to the configuration of oncelog's clients: kafka.fetch.max.bytes becomes
fetch_max_bytes. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any, Final

from oncelog.config import ClientConfig, ConsumerConfig, ProducerConfig
from oncelog.errors import ConfigError
from oncelog_pipeline.options import security_settings
from oncelog_pipeline.options.connector import REFUSALS
from oncelog_pipeline.options.reading import PREFIX, OptionError, Options, as_setting

SERVERS: Final = "kafka.bootstrap.servers"

GROUP_ID: Final = PREFIX + "group.id"
CLIENT_ID: Final = PREFIX + "client.id"


def bootstrap_servers(options: Options) -> str:
    """Return the option kafka.bootstrap.servers. Raises OptionError if it is missing."""
    servers = options.kafka.get(SERVERS, "").strip()
    if not servers:
        raise OptionError(f"{SERVERS} is missing: host:port of one broker or more, with commas between them")
    return servers


def settings(options: Options, config: type[ClientConfig]) -> dict[str, Any]:
    """Convert the options to keyword arguments for `config`, the configuration class of a Consumer or a Producer.
    Raises OptionError.
    """
    defaults = {field.name: field.default for field in fields(config) if field.default is not MISSING}
    known = {PREFIX + name.replace("_", "."): name for name in defaults}
    found: dict[str, Any] = {}
    for name, value in options.kafka.items():
        if name in REFUSALS:
            raise OptionError(f"{name} cannot be set here: {REFUSALS[name]}")
        if name in (SERVERS, GROUP_ID) or name in security_settings.KNOWN:
            continue
        if name not in known:
            near = get_close_matches(name, [*known, SERVERS, *security_settings.KNOWN], n=1)
            raise OptionError(f"unknown option {name!r}" + (f": did you mean {near[0]!r}?" if near else ""))
        default = defaults[known[name]]
        # `as_setting` takes the type of a setting from its default. This does not work for enable_idempotence, whose
        # default is no bool although the setting is a flag. The other settings without a typed default are texts.
        like = False if known[name] == "enable_idempotence" else default
        found[known[name]] = as_setting(name, value, like)
    if GROUP_ID in options.kafka and CLIENT_ID not in options.kafka:
        # kafka.group.id is only a label here, because the source joins no group
        found["client_id"] = options.kafka[GROUP_ID]
    found |= security_settings.security_settings(options.kafka)
    check_together(options, config, found)
    return found


def common(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that all of oncelog's clients accept."""
    shared = {field.name for field in fields(ClientConfig)}
    return {name: value for name, value in found.items() if name in shared}


def check_together(options: Options, config: type[ClientConfig], found: Mapping[str, Any]) -> None:
    """Raise OptionError if the client's config class refuses a value, or this combination of values."""
    servers = bootstrap_servers(options)
    try:
        config(bootstrap_servers=servers, **found).validate()
    except ConfigError as error:
        raise OptionError(f"kafka.*: {error.message}") from error


CONSUMER: Final = ConsumerConfig
PRODUCER: Final = ProducerConfig
