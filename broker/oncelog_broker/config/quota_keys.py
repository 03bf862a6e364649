"""The keys of quotas: the windows of the token buckets, the rates of new connections, and the size of pushed metrics.

Quotas of clients are not configuration keys: AlterClientQuotas sets these quotas (`oncelog quotas`). `BROKER_KEYS` in
`broker_keys` includes these keys. Names, defaults and allowed values are Kafka's.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.config.declared import ConfigKey, ConfigType, Importance, at_least

UNLIMITED_RATE: Final = 2**31 - 1

QUOTA_WINDOW_NUM = ConfigKey[int](
    "quota.window.num",
    ConfigType.INT,
    11,
    "One more than the number of windows of unused quota that a client may use in a burst.",
    at_least(1),
    Importance.LOW,
)
QUOTA_WINDOW_SIZE_SECONDS = ConfigKey[int](
    "quota.window.size.seconds",
    ConfigType.INT,
    1,
    "The length of a window of quota.window.num. Also the longest that a client waits for one request beyond "
    "request_percentage.",
    at_least(1),
    Importance.LOW,
)
CONTROLLER_QUOTA_WINDOW_NUM = ConfigKey[int](
    "controller.quota.window.num",
    ConfigType.INT,
    11,
    "quota.window.num for controller_mutation_rate: the windows of quota that may be used at once after a pause.",
    at_least(1),
    Importance.LOW,
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = ConfigKey[int](
    "controller.quota.window.size.seconds",
    ConfigType.INT,
    1,
    "The length of a window of controller.quota.window.num.",
    at_least(1),
    Importance.LOW,
)
MAX_CONNECTION_CREATION_RATE = ConfigKey[int](
    "max.connection.creation.rate",
    ConfigType.INT,
    UNLIMITED_RATE,
    "New connections per second; further ones wait to be accepted. May be set for one listener, "
    "listener.name.<name>.max.connection.creation.rate. The inter-broker listener has only its own limit.",
    at_least(1),
    Importance.MEDIUM,
)
TELEMETRY_MAX_BYTES = ConfigKey[int](
    "telemetry.max.bytes",
    ConfigType.INT,
    1024 * 1024,
    "The most bytes of metrics that a client may push at a time, compressed and decompressed (KIP-714).",
    at_least(1),
    Importance.LOW,
)
