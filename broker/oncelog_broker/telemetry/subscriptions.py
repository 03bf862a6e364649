"""Selects the metrics that a client shall push: the union of all subscriptions whose patterns match the client.

A subscription is a configuration resource of the type CLIENT_METRICS with the keys of `config/client_metrics_keys.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from typing import Final

from oncelog_broker.config import client_metrics_keys as keys
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.coordinator.patterns import Compiled, InvalidPattern, id_pattern
from oncelog_broker.runtime.steps import Steps
from oncelog_protocol.crc import crc32c
from oncelog_protocol.light_classes import NamedTuple

logger = logging.getLogger(__name__)

ALL_METRICS: Final = "*"
"""The metric name that means all metrics, in a subscription and in the response to a client."""
MAX_ATTRIBUTE_CHARS: Final = 256
"""Maximum length, in characters, of a client attribute that patterns can match. A longer attribute matches no pattern,
because matching takes time proportional to its length.
"""
MAX_COMPILED: Final = 64
"""Maximum number of compiled patterns in the cache; a pattern takes up to `patterns.MAX_PATTERN_BYTES` bytes of memory.
"""


class ClientAttributes(NamedTuple):
    """The attributes of a client with which the patterns of subscriptions are matched. The field names are the
    attribute names in the setting `match`.
    """

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str

    def cut(self) -> ClientAttributes:
        """Return these attributes, each cut to MAX_ATTRIBUTE_CHARS + 1 characters. The additional character shows that
        the attribute was too long.
        """
        return ClientAttributes(*(text[: MAX_ATTRIBUTE_CHARS + 1] for text in self))


class Subscription(NamedTuple):
    """One subscription. `match` maps attribute names to patterns, all of which must match the client; an empty `match`
    means every client.
    """

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, str]


class Subscribed(NamedTuple):
    """The metrics that one client shall push (prefixes of metric names in ascending order), and the push interval in
    ms.
    """

    metrics: tuple[str, ...]
    interval_ms: int


def subscriptions_in(configs: Mapping[str, Mapping[str, str]]) -> list[Subscription]:
    """Return the subscriptions that the client-metrics settings of a cluster image define. A subscription with a value
    that this release cannot read is logged and left out."""
    found = []
    for name, overrides in configs.items():
        try:
            found.append(
                Subscription(
                    _value(keys.METRICS, overrides),
                    _value(keys.INTERVAL_MS, overrides),
                    dict(keys.split_pattern(text) for text in _value(keys.MATCH, overrides)),
                )
            )
        except InvalidConfig as error:
            logger.warning("subscription of client metrics ignored", extra={"subscription": name, "reason": error})
    return found


def select(subscriptions: Iterable[Subscription], client: ClientAttributes) -> Steps[Subscribed]:
    """Return the metrics and the push interval for this client. Patterns are matched in jobs that run in a thread,
    because RE2 may take some milliseconds.
    """
    metrics, interval_ms = set[str](), keys.INTERVAL_MS.default
    for subscription in subscriptions:
        matches = not subscription.match
        if subscription.match:
            matches = yield partial(_matches, subscription.match, client)
        if matches:
            metrics.update(subscription.metrics)
            interval_ms = min(interval_ms, subscription.interval_ms)
    if ALL_METRICS in metrics:
        metrics = {ALL_METRICS}
    return Subscribed(tuple(sorted(metrics)), interval_ms)


def subscription_id(subscribed: Subscribed, client_instance_id: bytes) -> int:
    """Return the subscription id of a client, as an int32. The id is the same on all brokers, and changes when the
    metrics or the push interval of the client change. The id is the CRC-32C of the metrics and the interval, XORed with
    the 32-bit words of the client instance id.
    """
    text = f"{','.join(subscribed.metrics)} {subscribed.interval_ms}"
    computed = crc32c(text.encode())
    for start in range(0, len(client_instance_id), 4):
        computed ^= int.from_bytes(client_instance_id[start : start + 4], "big")
    return computed - 2**32 if computed >= 2**31 else computed


def _value(key: keys.AnyKey, overrides: Mapping[str, str]) -> keys.AnyValue:
    return key.parse(overrides[key.name]) if key.name in overrides else key.default


def _matches(match: Mapping[str, str], client: ClientAttributes) -> bool:
    """Whether each pattern in `match` matches the client's entire attribute of the same name. An invalid pattern
    matches nothing.
    """
    for name, text in match.items():
        attribute = getattr(client, name)
        try:
            if len(attribute) > MAX_ATTRIBUTE_CHARS or _compiled(text).fullmatch(attribute) is None:
                return False
        except InvalidPattern:
            return False
    return True


@lru_cache(maxsize=MAX_COMPILED)
def _compiled(text: str) -> Compiled:
    return id_pattern(text)
