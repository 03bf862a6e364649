"""The subscriptions and assignments that members of classic groups exchange through the coordinator; the coordinator
does not parse them.

A subscription or assignment is an int16 version, followed by the message in that version. Newer versions only append
fields, so a reader decodes an unknown version as the newest version that it knows.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeVar

from oncelog_protocol.codec import codec
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.schema import array, bytes_, int32, message, schema_of, string, struct
from oncelog_protocol.wire_writers import Buffer

M = TypeVar("M")

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of consumer groups."""

VERSION: Final = Struct(">h")


@message(versions="0-3", flexible=None)
class ConsumerProtocolSubscription:
    """The topics that a member subscribes to; the member's metadata in JoinGroup.

    v1: owned_partitions (KIP-429). v2: generation_id, by which the group's leader detects that owned_partitions are
    outdated. v3: rack_id (KIP-881).
    """

    topics: list[str] = array(of=string())
    user_data: bytes | None = bytes_(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array("1+", default_factory=list)
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="3+", default=None)

    @struct
    class TopicPartition:
        topic: str = string("1+")
        partitions: list[int] = array("1+", of=int32())


@message(versions="0-3", flexible=None)
class ConsumerProtocolAssignment:
    """The partitions assigned to a member; the member's assignment in SyncGroup. All versions have the same fields."""

    assigned_partitions: list[TopicPartition] = array()
    user_data: bytes | None = bytes_(nullable="0+", default=None)

    @struct
    class TopicPartition:
        topic: str = string()
        partitions: list[int] = array(of=int32())


@message(versions="0-1", flexible=None)
class StickyAssignorUserData:
    """User data of the eager sticky assignor: the partitions that the member owned before it revoked them to join the
    next generation. The data have no version prefix.

    v1: generation.
    """

    previous_assignment: list[TopicPartition] = array()
    generation: int = int32("1+", default=-1)

    @struct
    class TopicPartition:
        topic: str = string()
        partitions: list[int] = array(of=int32())


@message(versions="0", flexible=None)
class CooperativeStickyUserData:
    """The user data of the cooperative sticky assignor: the generation of the owned partitions, which subscriptions
    before v2 do not contain.
    """

    generation: int = int32()


def encode_versioned(data: M, version: int) -> bytes:
    """Return the version as int16, followed by the message."""
    return VERSION.pack(version) + codec(type(data), version).encode(data)


def decode_versioned(cls: type[M], data: Buffer) -> M:
    """Return the message, decoded in the version at the start of `data`. Raises MalformedMessage."""
    if len(data) < VERSION.size:
        raise MalformedMessage(f"{cls.__name__}: {len(data)} bytes hold no version")
    (version,) = VERSION.unpack_from(data)
    known = schema_of(cls).versions
    if version < known.low:
        raise MalformedMessage(f"{cls.__name__}: version {version} is negative")
    return codec(cls, min(version, known.high)).decode(data, VERSION.size)
