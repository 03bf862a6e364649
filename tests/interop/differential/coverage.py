"""Determines which requests the scenarios must make: each API that oncelog serves, in each version, because Kafka
4.3 serves the same versions.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey

WITHOUT_SCENARIOS: Final = frozenset(
    {
        *(ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE),
        *(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS),
        *(ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE),
    }
)
"""API keys of which no scenario sends a request.
`tests/interop/test_java_shares.py` and `tests/interop/test_streams_groups.py` send requests of these APIs.
"""


def missing_versions(asked: Set[tuple[ApiKey, int]]) -> list[str]:
    """Return the API versions that no scenario has sent, such as "Fetch v9"."""
    served = {
        (one.key, version)
        for one in SERVED.values()
        if not one.is_for_brokers and one.key not in WITHOUT_SCENARIOS
        for version in range(one.versions.low, one.versions.high + 1)
    }
    missing = served - asked
    return [f"{key.message_name} v{version}" for key, version in sorted(missing)]
