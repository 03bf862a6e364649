"""Determines which requests the scenarios must make: each API that oncelog serves, in each version, because Kafka
4.3 serves the same versions.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey

ONLY_WITH_SETTINGS: Final = frozenset({(ApiKey.INIT_PRODUCER_ID, 6)})
"""Versions that both brokers serve only with the settings of `configured`; test_differential_configured.py sends them.
"""


def missing_versions(asked: Set[tuple[ApiKey, int]]) -> list[str]:
    """Return the API versions that no scenario has sent, such as "Fetch v9"."""
    served = {
        (one.key, version)
        for one in SERVED.values()
        if not one.is_for_brokers
        for version in range(one.versions.low, one.versions.high + 1)
    }
    missing = served - ONLY_WITH_SETTINGS - asked
    return [f"{key.message_name} v{version}" for key, version in sorted(missing)]
