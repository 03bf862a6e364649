"""The requests of the ZooKeeper protocol that the broker sends, in the form that kazoo's connection accepts.

kazoo has no `AddWatch` (persistent recursive, ZooKeeper 3.6) and no `MultiRead`; its `Transaction` does not return the
stats of created nodes. All paths are complete, including the chroot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.serialization import (
    int_struct,
    multiheader_struct,
    read_buffer,
    read_string,
    stat_struct,
    write_buffer,
    write_string,
)

from oncelog_broker.metadata.stores.store import Check, Create, Delete, Operation, Set, Stat

Found = tuple[bytes, Stat]

_EPHEMERAL = 1
_PERSISTENT_RECURSIVE = 1
_GET_DATA = 4
_END = multiheader_struct.pack(-1, True, -1)
_ERROR = -1
_CREATE, _DELETE, _SET, _CHECK = 15, 2, 5, 13
"""15 is create2, which returns the stat of the created node."""


def read_stat(data: bytes, offset: int) -> Stat:
    czxid, mzxid, _, _, version, _, _, owner, _, _, _ = stat_struct.unpack_from(data, offset)
    return Stat(version, czxid, mzxid, owner)


@dataclass(frozen=True, slots=True)
class AddWatch:
    """Requests a notification of every node at or below `path` that is created, set or deleted, until the connection
    ends.
    """

    path: str
    type: ClassVar[int] = 106

    def serialize(self) -> bytes:
        return bytes(write_string(self.path) + int_struct.pack(_PERSISTENT_RECURSIVE))

    @classmethod
    def deserialize(cls, _data: bytes, _offset: int) -> None:
        return None


@dataclass(frozen=True, slots=True)
class MultiRead:
    """Reads many nodes in one request, which is not a snapshot: each node may be read in a different state. For a node
    that does not exist, the list of results contains an exception.
    """

    paths: Sequence[str]
    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        header = multiheader_struct.pack(_GET_DATA, False, -1)
        return bytes(b"".join(header + write_string(path) + b"\0" for path in self.paths) + _END)

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Found | Exception]:
        found: list[Found | Exception] = []
        while True:
            kind, done, _ = multiheader_struct.unpack_from(data, offset)
            offset += multiheader_struct.size
            if done:
                return found
            if kind == _ERROR:
                found.append(EXCEPTIONS[int_struct.unpack_from(data, offset)[0]]())
                offset += int_struct.size
                continue
            content, offset = read_buffer(data, offset)
            found.append((content or b"", read_stat(data, offset)))
            offset += stat_struct.size


@dataclass(frozen=True, slots=True)
class Multi:
    """Does all operations or none. The response has a stat, None or an exception for each operation. The field `acls`
    has an ACL for each operation, encoded by the module `acls`; only the ACLs of created nodes are used.
    """

    operations: Sequence[Operation]
    acls: Sequence[bytes]
    type: ClassVar[int] = 14

    def serialize(self) -> bytes:
        return bytes(b"".join(map(_serialized, self.operations, self.acls)) + _END)

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Stat | Exception | None]:
        results: list[Stat | Exception | None] = []
        while True:
            kind, done, _ = multiheader_struct.unpack_from(data, offset)
            offset += multiheader_struct.size
            if done:
                return results
            if kind == _ERROR:
                results.append(EXCEPTIONS[int_struct.unpack_from(data, offset)[0]]())
                offset += int_struct.size
                continue
            if kind == _CREATE:
                _, offset = read_string(data, offset)
            if kind in (_CREATE, _SET):
                results.append(read_stat(data, offset))
                offset += stat_struct.size
            else:
                results.append(None)


def _serialized(operation: Operation, acl: bytes) -> bytes:
    path = write_string(operation.path)
    match operation:
        case Create():
            kind, data = _CREATE, write_buffer(operation.data) + acl
            last = _EPHEMERAL if operation.ephemeral else 0
        case Set():
            kind, data, last = _SET, write_buffer(operation.data), operation.version
        case Delete():
            kind, data, last = _DELETE, b"", operation.version
        case Check():
            kind, data, last = _CHECK, b"", operation.version
    return bytes(multiheader_struct.pack(kind, False, -1) + path + data + int_struct.pack(last))
