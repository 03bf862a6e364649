"""The configuration keys of a subscription of client metrics (KIP-714), with Kafka's names and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from oncelog_broker.config.declared import ConfigKey, ConfigType, InvalidConfig

AnyKey: TypeAlias = ConfigKey[Any]
AnyValue: TypeAlias = Any

MIN_INTERVAL_MS: Final = 100
MAX_INTERVAL_MS: Final = 3_600_000
MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""The attributes of a client that a subscription may match."""

METRICS = ConfigKey[tuple[str, ...]](
    "metrics",
    ConfigType.LIST,
    (),
    "Prefixes of the names of the metrics that clients push. *: all metrics. Empty: none.",
)
INTERVAL_MS = ConfigKey[int](
    "interval.ms",
    ConfigType.INT,
    300_000,
    f"How often clients push these metrics, from {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS}.",
)
MATCH = ConfigKey[tuple[str, ...]](
    "match",
    ConfigType.LIST,
    (),
    f"Which clients push these metrics: a list of name=pattern, with one of the names {', '.join(MATCHED)} and a "
    "pattern of RE2 that must match the entire value. A client must match every element. Empty: all clients.",
)
CLIENT_METRICS_KEYS: Final[Mapping[str, ConfigKey[Any]]] = {key.name: key for key in (METRICS, INTERVAL_MS, MATCH)}
"""The keys of a subscription, by name."""


def split_pattern(text: str) -> tuple[str, str]:
    """Return attribute and pattern of an element of `match`. Raises InvalidConfig for any other text."""
    name, separator, pattern = text.partition("=")
    if not separator or name.strip() not in MATCHED:
        raise InvalidConfig(f"Illegal client matching pattern {text!r}: expected NAME=PATTERN, {', '.join(MATCHED)}")
    return name.strip(), pattern.strip()
