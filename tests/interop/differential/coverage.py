"""Determines which requests the scenarios must make: each API that oncelog serves, in each version that the oracle also
serves.
"""

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
"""Pairs of API key and version that Kafka 4.3 has and Kafka 4.1 does not have."""
OFF_IN_KAFKA_4_1: Final = frozenset(
    {
        *(ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE),
        *(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS),
        *(ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE),
    }
)
"""API keys that Kafka 4.1 refuses, because share groups and streams groups are disabled by default.
`tests/interop/test_java_shares.py` and `tests/interop/test_streams_groups.py` send requests of these APIs.
"""


def missing_versions(asked: Set[tuple[ApiKey, int]]) -> list[str]:
    """Return the API versions that no scenario has sent, such as "Fetch v9"."""
    served = {
        (one.key, version)
        for one in SERVED.values()
        if not one.is_for_brokers and one.key not in OFF_IN_KAFKA_4_1
        for version in range(one.versions.low, one.versions.high + 1)
    }
    missing = served - NOT_IN_KAFKA_4_1 - asked
    return [f"{key.message_name} v{version}" for key, version in sorted(missing)]
