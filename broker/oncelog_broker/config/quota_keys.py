"""The quota keys: the window of the token buckets, and the rates of new connections.

Quotas of clients are not configuration: AlterClientQuotas sets them (`oncelog quotas`). `BROKER_KEYS` in `broker_keys`
includes these keys. Names, defaults and allowed values are Kafka's.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.config.declared import ConfigKey, ConfigType, Importance, at_least

UNLIMITED_RATE: Final = 2**31 - 1

QUOTA_WINDOW_NUM = ConfigKey[int](
    "quota.window.num",
    ConfigType.INT,
    11,
    "A client that used less than its quota may make up for that within so many windows, less one.",
    at_least(1),
    Importance.LOW,
)
QUOTA_WINDOW_SIZE_SECONDS = ConfigKey[int](
    "quota.window.size.seconds",
    ConfigType.INT,
    1,
    "How long such a window is. It is also the longest that a client waits for one request beyond request_percentage.",
    at_least(1),
    Importance.LOW,
)
CONTROLLER_QUOTA_WINDOW_NUM = ConfigKey[int](
    "controller.quota.window.num",
    ConfigType.INT,
    11,
    "As quota.window.num, for controller_mutation_rate: after a pause so many windows' worth may be done at once.",
    at_least(1),
    Importance.LOW,
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = ConfigKey[int](
    "controller.quota.window.size.seconds",
    ConfigType.INT,
    1,
    "How long a window of controller.quota.window.num is.",
    at_least(1),
    Importance.LOW,
)
MAX_CONNECTION_CREATION_RATE = ConfigKey[int](
    "max.connection.creation.rate",
    ConfigType.INT,
    UNLIMITED_RATE,
    "New connections a second; those beyond wait to be accepted. Also for one listener alone, "
    "listener.name.<name>.max.connection.creation.rate. The inter-broker listener has only that of its own.",
    at_least(1),
    Importance.MEDIUM,
)
