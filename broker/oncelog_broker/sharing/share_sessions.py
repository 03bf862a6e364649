"""Share sessions: which partitions a member of a share group reads from this broker. Pure.

A member opens a session with its first ShareFetch, and names in later ones what it adds and removes. The session epoch
counts its requests, so that one that was lost, or came twice, is noticed. A session belongs to a connection: when that
is lost, the member's records are released, unless the member has opened a newer session meanwhile (KAFKA-19950).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.share_fetch import CLOSE_SESSION

FIRST_EPOCH: Final = 1
"""The epoch of the request after the one that opens the session, and of the one after the highest epoch."""
MAX_EPOCH: Final = 2**31 - 1
MAX_PARTITIONS: Final = 10_000
"""The most partitions of one session."""


class SharedTopicPartition(NamedTuple):
    """A partition by the id of its topic."""

    topic_id: bytes
    partition: int


class ShareSession:
    """`next_epoch` is what the next request must name. `connection` is whose end is the session's; only compared."""

    __slots__ = ("connection", "group_id", "member_id", "next_epoch", "partitions")

    def __init__(self, group_id: str, member_id: str, connection: object) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.connection = connection
        self.next_epoch = FIRST_EPOCH
        self.partitions: dict[SharedTopicPartition, None] = {}

    def add(self, partitions: Iterable[SharedTopicPartition]) -> None:
        """Raises KafkaError INVALID_REQUEST for too many partitions."""
        self.partitions.update(dict.fromkeys(partitions))
        if len(self.partitions) > MAX_PARTITIONS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a share session has at most {MAX_PARTITIONS} partitions")

    def forget(self, partitions: Iterable[SharedTopicPartition]) -> None:
        for partition in partitions:
            self.partitions.pop(partition, None)

    def in_turn(self) -> list[SharedTopicPartition]:
        """The partitions, beginning with another one for each request, so that no partition starves."""
        partitions = list(self.partitions)
        at = self.next_epoch % len(partitions) if partitions else 0
        return partitions[at:] + partitions[:at]


class ShareSessions:
    """The sessions of one broker; at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def has_group(self, group_id: str) -> bool:
        return any(of_group == group_id for of_group, _ in self._sessions)

    def open(self, group_id: str, member_id: str, connection: object) -> ShareSession:
        """A new session, in place of the member's older one, whose records stay with the member. Raises KafkaError
        SHARE_SESSION_LIMIT_REACHED."""
        key = group_id, member_id
        if key not in self._sessions and len(self._sessions) >= self._limit:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"group.share.max.share.sessions={self._limit} sessions are open"
            )
        session = self._sessions[key] = ShareSession(group_id, member_id, connection)
        return session

    def next(self, group_id: str, member_id: str, epoch: int, connection: object) -> ShareSession:
        """The session for its next request, on this connection from now on; a request that closes it names
        CLOSE_SESSION. Raises KafkaError SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != CLOSE_SESSION:
            if epoch != session.next_epoch:
                raise KafkaError(
                    ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"epoch {epoch}, but {session.next_epoch} was expected"
                )
            session.next_epoch = FIRST_EPOCH if epoch == MAX_EPOCH else epoch + 1
        session.connection = connection
        return session

    def close(self, session: ShareSession) -> None:
        if self._sessions.get((session.group_id, session.member_id)) is session:
            del self._sessions[session.group_id, session.member_id]

    def lose(self, connection: object) -> list[ShareSession]:
        """Close the sessions of a connection that has ended, and return them."""
        lost = [session for session in self._sessions.values() if session.connection is connection]
        for session in lost:
            self.close(session)
        return lost
