"""The records of `__share_group_state`: the state of share partitions (KIP-932).

A snapshot is the entire state of a share partition; an update changes the newest snapshot of its share partition. A
null snapshot is a tombstone: the state was deleted.
"""

from __future__ import annotations

from typing import Final

from oncelog_protocol.schema import array, int8, int16, int32, int64, message, string, struct, uuid

SNAPSHOT_KEY: Final = 0
UPDATE_KEY: Final = 1
VALUE_VERSION: Final = 0


@message(versions="0", flexible=None)
class ShareSnapshotKey:
    """The key of a share partition's snapshot."""

    group_id: str = string("0")
    topic_id: bytes = uuid("0")
    partition: int = int32("0")


@message(versions="0", flexible="0+")
class ShareSnapshotValue:
    """The entire state of a share partition. Records outside the batches are available or not known yet."""

    snapshot_epoch: int = int32()  # number of this snapshot, which counts the snapshots of the share partition
    state_epoch: int = int32()  # state epoch, raised when the start offset is reset
    leader_epoch: int = int32()  # epoch of the newest leader that has read the state
    start_offset: int = int64()  # all records below this offset are acknowledged or archived; -1 if not set yet
    # number of records from the start offset on that are acknowledged or archived (Kafka 4.2); -1: unknown
    delivery_complete_count: int = int32(tag=0, default=-1)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array()

    @struct
    class StateBatch:
        first_offset: int = int64()
        last_offset: int = int64()
        delivery_state: int = int8()  # state of the batch's records: 0 available, 2 acknowledged, 4 archived
        delivery_count: int = int16()


@message(versions="1", flexible=None)
class ShareUpdateKey:
    """The key of a change to a share partition's newest snapshot."""

    group_id: str = string("1")
    topic_id: bytes = uuid("1")
    partition: int = int32("1")


@message(versions="0", flexible="0+")
class ShareUpdateValue:
    """A change to a snapshot: the batches of records whose state has changed."""

    snapshot_epoch: int = int32()  # snapshot epoch of the snapshot that this update changes
    leader_epoch: int = int32()
    start_offset: int = int64()  # the new start offset; -1 means that it is unchanged
    delivery_complete_count: int = int32(tag=0, default=-1)
    state_batches: list[StateBatch] = array()

    @struct
    class StateBatch:
        first_offset: int = int64()
        last_offset: int = int64()
        delivery_state: int = int8()
        delivery_count: int = int16()
