"""The settings of transaction coordination, as plain values for the modules without I/O."""

from __future__ import annotations

from typing import NamedTuple

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig


class TransactionConfig(NamedTuple):
    """The settings of the transaction coordinator. The field names are derived from Kafka's keys; times are in ms."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    two_phase_commit_enable: bool = False

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionConfig:
        return cls(
            max_timeout_ms=config[keys.TRANSACTION_MAX_TIMEOUT_MS],
            id_expiration_ms=config[keys.TRANSACTIONAL_ID_EXPIRATION_MS],
            two_phase_commit_enable=config[keys.TRANSACTION_TWO_PHASE_COMMIT_ENABLE],
        )
