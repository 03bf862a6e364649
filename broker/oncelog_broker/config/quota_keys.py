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
    "The number of quota windows, including the current one: a client may use the unused quota of all but one "
    "of these windows in a burst.",
    at_least(1),
    Importance.LOW,
)
QUOTA_WINDOW_SIZE_SECONDS = ConfigKey[int](
    "quota.window.size.seconds",
    ConfigType.INT,
    1,
    "The length of a window of quota.window.num, in seconds. Also the longest throttle time for one request "
    "that exceeds request_percentage.",
    at_least(1),
    Importance.LOW,
)
CONTROLLER_QUOTA_WINDOW_NUM = ConfigKey[int](
    "controller.quota.window.num",
    ConfigType.INT,
    11,
    "The number of windows of controller_mutation_rate quota that a client may use in a burst after a pause.",
    at_least(1),
    Importance.LOW,
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = ConfigKey[int](
    "controller.quota.window.size.seconds",
    ConfigType.INT,
    1,
    "The length of a window of controller.quota.window.num, in seconds.",
    at_least(1),
    Importance.LOW,
)
MAX_CONNECTION_CREATION_RATE = ConfigKey[int](
    "max.connection.creation.rate",
    ConfigType.INT,
    UNLIMITED_RATE,
    "The largest number of new connections per second. Further connections wait to be accepted. The limit can "
    "be set for one listener as listener.name.<name>.max.connection.creation.rate. Only a limit of its own "
    "applies to the inter-broker listener.",
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
