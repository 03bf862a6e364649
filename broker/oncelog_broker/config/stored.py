"""Handles settings in the metadata store that this release cannot read, because a newer release or a tool wrote them.
Pure.

If a value is unreadable, only this one setting is affected: it is treated as not set (S76). If ignoring a setting could
delete records that the unreadable value was meant to keep, all records are kept until the setting is corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from oncelog_broker.config.broker_keys import BROKER_KEYS
from oncelog_broker.config.declared import ConfigKey, InvalidConfig, UpdateMode
from oncelog_broker.config.topic_keys import TOPIC_KEYS
from oncelog_protocol.light_classes import NamedTuple

KEEPS_RECORDS: Final[Mapping[str, str]] = {
    "cleanup.policy": "",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "log.cleanup.policy": "",
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
}
"""Maps a topic key to the value that replaces an unreadable value; with the replacement no records are deleted or
compacted.
"""
UNREADABLE_TOPIC: Final[Mapping[str, str]] = {"cleanup.policy": ""}
"""The replacement for the settings of a topic whose node in the metadata store cannot be read."""
UNREADABLE_BROKER: Final[Mapping[str, str]] = {"log.cleanup.policy": ""}
"""The replacement for the dynamic settings of a broker, or of all brokers, if the node that has these settings cannot
be read.
"""


class Unreadable(NamedTuple):
    """A setting whose value is unreadable."""

    name: str
    reason: str
    instead: str | None
    """The replacement of the value; None if the setting is treated as not set."""


def readable_topic_overrides(overrides: Mapping[str, str]) -> Mapping[str, str]:
    """Return the overrides of a topic with unreadable values replaced. Unknown keys stay in the result unchanged."""
    return _readable(overrides, {fault.name: fault for fault in unreadable_topic_overrides(overrides)})


def unreadable_topic_overrides(overrides: Mapping[str, str]) -> list[Unreadable]:
    """Return the unreadable settings of a topic."""
    return list(_faults(overrides, _topic_key))


def readable_broker_overrides(overrides: Mapping[str, str]) -> dict[str, object]:
    """Return a broker's dynamic settings as a map from key to typed value, without unknown and read-only keys."""
    readable = _readable(overrides, {fault.name: fault for fault in unreadable_broker_overrides(overrides)})
    return {name: BROKER_KEYS[name].parse(text) for name, text in readable.items() if _broker_key(name) is not None}


def unreadable_broker_overrides(overrides: Mapping[str, str]) -> list[Unreadable]:
    """Return the settings of a broker, or of all brokers, that are unreadable or read-only."""
    fixed = [name for name in overrides if name in BROKER_KEYS and _broker_key(name) is None]
    return [
        *_faults(overrides, _broker_key),
        *(Unreadable(name, f"Configuration {name} cannot change while the broker runs", None) for name in fixed),
    ]


def _topic_key(name: str) -> ConfigKey[Any] | None:
    found = TOPIC_KEYS.get(name)
    return None if found is None else found.key


def _broker_key(name: str) -> ConfigKey[Any] | None:
    key = BROKER_KEYS.get(name)
    return None if key is None or key.update_mode is UpdateMode.READ_ONLY else key


def _faults(overrides: Mapping[str, str], key_of: Callable[[str], ConfigKey[Any] | None]) -> Iterator[Unreadable]:
    for name, text in overrides.items():
        key = key_of(name)
        if key is not None:
            try:
                key.parse(text)
            except InvalidConfig as error:
                yield Unreadable(name, str(error), KEEPS_RECORDS.get(name))


def _readable(overrides: Mapping[str, str], faults: Mapping[str, Unreadable]) -> Mapping[str, str]:
    if not faults:
        return overrides
    readable = {name: text for name, text in overrides.items() if name not in faults}
    return readable | {name: fault.instead for name, fault in faults.items() if fault.instead is not None}
