"""Kafka's topic keys without effect in oncelog. The keys are declared so that scripts for Kafka work.

This module declares a key if scripts for Kafka commonly set the key. A value that would enable a feature that this
broker lacks (recompression, tiered storage) is refused; every other value is allowed. In the same way, a Kafka broker
without tiered storage refuses `remote.storage.enable=true`. Defaults and allowed values are Kafka's.
"""

from __future__ import annotations

from typing import Any, Final, cast

from oncelog_broker.config.declared import Allowed, ConfigKey, ConfigType, at_least, between

INT, LONG, BOOLEAN = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN

NO_RECOMPRESSION: Final = "No effect: batches stay as the producer compressed them."
NO_TIERED_STORAGE: Final = "No effect: there is no tiered storage, so all of a log is local."

ONLY_FALSE: Final = Allowed("and only false, as there is no tiered storage", lambda value: value is False)
GZIP_LEVELS: Final = Allowed("between 1 and 9, or -1", lambda value: value == -1 or 1 <= cast(int, value) <= 9)

INERT_TOPIC_KEYS: Final[tuple[ConfigKey[Any], ...]] = (
    ConfigKey[int]("compression.gzip.level", INT, -1, NO_RECOMPRESSION, GZIP_LEVELS),
    ConfigKey[int]("compression.lz4.level", INT, 9, NO_RECOMPRESSION, between(1, 17)),
    ConfigKey[int]("compression.zstd.level", INT, 3, NO_RECOMPRESSION, between(-131072, 22)),
    ConfigKey[int]("local.retention.bytes", LONG, -2, NO_TIERED_STORAGE, at_least(-2)),
    ConfigKey[int]("local.retention.ms", LONG, -2, NO_TIERED_STORAGE, at_least(-2)),
    ConfigKey[bool]("remote.log.copy.disable", BOOLEAN, False, NO_TIERED_STORAGE, ONLY_FALSE),
    ConfigKey[bool]("remote.log.delete.on.disable", BOOLEAN, False, NO_TIERED_STORAGE, ONLY_FALSE),
    ConfigKey[bool]("remote.storage.enable", BOOLEAN, False, NO_TIERED_STORAGE, ONLY_FALSE),
)
