"""Which requests the scenarios must make: each API that we serve, in each version that the oracle serves too."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey

NOT_IN_KAFKA_4_1: Final = frozenset(
    {
        (ApiKey.LIST_OFFSETS, 11),
        (ApiKey.OFFSET_COMMIT, 10),
        (ApiKey.OFFSET_FETCH, 10),
        (ApiKey.WRITE_TXN_MARKERS, 2),
    }
)
"""Versions of Kafka 4.3, which its 4.1 cannot answer."""


def missing_versions(asked: Set[tuple[ApiKey, int]]) -> list[str]:
    """The API versions that no scenario has sent, such as "Fetch v9"."""
    served = {
        (one.key, version)
        for one in SERVED.values()
        if not one.is_for_brokers
        for version in range(one.versions.low, one.versions.high + 1)
    }
    missing = served - NOT_IN_KAFKA_4_1 - asked
    return [f"{key.message_name} v{version}" for key, version in sorted(missing)]
