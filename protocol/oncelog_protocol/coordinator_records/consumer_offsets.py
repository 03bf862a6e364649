"""The records of `__consumer_offsets` that the classic protocol writes: committed offsets and groups.

Keys of type 0 and 1 are committed offsets, and keys of type 2 are groups; types from 3 on belong to KIP-848 and later
protocols. A tombstone (value None) removes the offset or group. oncelog reads values of all versions. It writes the
version that current Kafka writes, because older tools and brokers, which do not know tagged fields, can read that
version (KIP-915).
"""

from __future__ import annotations

from typing import Final

from oncelog_protocol.schema import array, bytes_, int32, int64, message, string, struct

OFFSET_COMMIT_KEY_VERSIONS: Final = (0, 1)
OFFSET_COMMIT_KEY_VERSION: Final = 1
GROUP_METADATA_KEY_VERSION: Final = 2

OFFSET_COMMIT_VALUE_VERSION: Final = 3
OFFSET_COMMIT_VALUE_WITH_EXPIRY_VERSION: Final = 1
"""The only version that has an expire timestamp; it has no leader epoch."""
GROUP_METADATA_VALUE_VERSION: Final = 3


@message(versions="0-1", flexible=None)
class OffsetCommitKey:
    """The key of one committed offset of a group. The two key versions 0 and 1 have the same fields."""

    group: str = string("0-1")
    topic: str = string("0-1")
    partition: int = int32("0-1")


@message(versions="0-4", flexible="4+")
class OffsetCommitValue:
    """A committed offset.

    v1: expire_timestamp, in this version only (since KIP-211, offsets expire according to the state of the group). v3:
    leader_epoch (KIP-320). v4: flexible.
    """

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)


@message(versions="2", flexible=None)
class GroupMetadataKey:
    """The key of a group's state."""

    group: str = string("2")


@message(versions="0-4", flexible="4+")
class GroupMetadataValue:
    """The state of a group: either a generation with its assignments, or an empty group.

    v1: rebalance_timeout of the members.
    v2: current_state_timestamp: the time at which the group entered its state (KIP-211).
    v3: group_instance_id of the members (KIP-345).
    v4: flexible.
    """

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")  # the chosen assignor; None if the group has no members
    leader: str | None = string(nullable="0+")  # the leader's member id
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array()

    @struct
    class MemberMetadata:
        member_id: str = string()
        group_instance_id: str | None = string("3+", nullable="3+", default=None)
        client_id: str = string()
        client_host: str = string()
        rebalance_timeout: int = int32("1+", default=-1)
        session_timeout: int = int32()
        subscription: bytes = bytes_()  # the member's metadata for the chosen protocol
        assignment: bytes = bytes_()
