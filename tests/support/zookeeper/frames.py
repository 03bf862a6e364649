"""ZooKeeper's frames as a proxy sees them: a length of four bytes, and the fields of the payload that identify the
frame.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from struct import Struct
from typing import Final

SIZE: Final = Struct(">i")
REQUEST: Final = Struct(">ii")
"""xid, operation."""
XID: Final = Struct(">i")


class Direction(Enum):
    REQUESTS = "to the server"
    ANSWERS = "to the client: answers and watch events"


class Op(IntEnum):
    """The operation codes of ZooKeeper's ZooDefs.OpCode."""

    NOTIFICATION = 0
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CREATE_SESSION = -10
    CLOSE_SESSION = -11


WRITES: Final = frozenset(
    {Op.CREATE, Op.DELETE, Op.SET_DATA, Op.SET_ACL, Op.MULTI, Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL}
)
"""The operations that change the tree; opening and closing a session are not included."""


class Frame:
    """One packet with its length. The `op` of a response is the `op` of its request; the `op` of a watch event is
    NOTIFICATION.
    """

    __slots__ = ("data", "direction", "number", "op", "xid")

    def __init__(self, direction: Direction, data: bytes, number: int, xid: int, op: int) -> None:
        self.direction = direction
        self.data = data
        self.number = number
        """The frame's position in its connection and direction, from 1; frame 1 is the request that opens the session,
        or its response.
        """
        self.xid = xid
        self.op = op

    @property
    def is_write(self) -> bool:
        return self.op in WRITES

    def mentions(self, path: str) -> bool:
        """Whether the frame contains the bytes of this path; requests contain their paths, only some responses do."""
        return path.encode() in self.data

    def __repr__(self) -> str:
        return f"<{self.direction.name} {self.number}: op {self.op}, xid {self.xid}, {len(self.data)} bytes>"


class FrameReader:
    """Parses the frames of one connection in both directions."""

    def __init__(self) -> None:
        self._ops: dict[int, int] = {}
        self._counts = dict.fromkeys(Direction, 0)

    def read(self, direction: Direction, data: bytes) -> Frame:
        self._counts[direction] += 1
        number = self._counts[direction]
        if number == 1:
            return Frame(direction, data, number, 0, Op.CREATE_SESSION)
        if direction is Direction.REQUESTS:
            xid, op = REQUEST.unpack_from(data, SIZE.size)
            self._ops[xid] = op
        else:
            (xid,) = XID.unpack_from(data, SIZE.size)
            op = Op.NOTIFICATION if xid == -1 else self._ops.pop(xid, Op.PING)
        return Frame(direction, data, number, xid, op)
