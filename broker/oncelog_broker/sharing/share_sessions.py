"""Share sessions: the partitions that a member of a share group reads from this broker. Pure.

A member opens a session with its first ShareFetch. The member's later requests name only the partitions to add to or
remove from the session. The session epoch counts the requests of a session, so that a lost or repeated request is
noticed. A session belongs to a connection: when the connection is lost, the member's records are released, unless the
member has opened a newer session meanwhile (KAFKA-19950).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.share_fetch import CLOSE_SESSION

FIRST_EPOCH: Final = 1
"""The epoch of a session's second request; after the highest epoch, session epochs continue with this number."""
MAX_EPOCH: Final = 2**31 - 1
MAX_PARTITIONS: Final = 10_000
"""Maximum number of partitions in one session."""
MAX_ALL_PARTITIONS: Final = 100_000
"""Maximum number of partitions in all sessions of a broker together, the same as for fetch sessions; some 20 MB."""


class SharedTopicPartition(NamedTuple):
    """A partition, identified by topic id and index."""

    topic_id: bytes
    partition: int


class ShareSession:
    """The session of one member. `next_epoch` is the session epoch that the next request must have. The session ends
    with `connection`, an object that is only compared by identity.
    """

    __slots__ = ("connection", "group_id", "member_id", "next_epoch", "partitions")

    def __init__(self, group_id: str, member_id: str, connection: object) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.connection = connection
        self.next_epoch = FIRST_EPOCH
        self.partitions: dict[SharedTopicPartition, None] = {}

    def in_turn(self) -> list[SharedTopicPartition]:
        """Return the partitions of the session. Each request begins with a different partition, so that no partition
        starves.
        """
        partitions = list(self.partitions)
        at = self.next_epoch % len(partitions) if partitions else 0
        return partitions[at:] + partitions[:at]


class ShareSessions:
    """The sessions of one broker: at most `limit` sessions, with at most `max_partitions` partitions in total."""

    def __init__(self, limit: int, *, max_partitions: int = MAX_ALL_PARTITIONS) -> None:
        self._limit = limit
        self._max_partitions = max_partitions
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._of_groups: Counter[str] = Counter()
        """Maps each group id to the number of the group's sessions; contains only groups with sessions."""
        self._partitions = 0
        """The number of partitions of all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def has_group(self, group_id: str) -> bool:
        return group_id in self._of_groups

    def is_open(self, session: ShareSession) -> bool:
        """Whether the session is open: neither closed nor replaced by a newer session of the member."""
        return self._sessions.get((session.group_id, session.member_id)) is session

    def open(self, group_id: str, member_id: str, connection: object) -> ShareSession:
        """Open a session, which replaces an older session of the member; the member keeps its records. Raises
        KafkaError SHARE_SESSION_LIMIT_REACHED."""
        key = group_id, member_id
        if key not in self._sessions and len(self._sessions) >= self._limit:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"group.share.max.share.sessions={self._limit} sessions are open"
            )
        if key in self._sessions:
            self.close(self._sessions[key])
        session = self._sessions[key] = ShareSession(group_id, member_id, connection)
        self._of_groups[group_id] += 1
        return session

    def change(
        self,
        session: ShareSession,
        added: Collection[SharedTopicPartition],
        forgotten: Iterable[SharedTopicPartition] = (),
    ) -> None:
        """Add partitions to an open session, and remove other partitions. Raises KafkaError INVALID_REQUEST or
        SHARE_SESSION_LIMIT_REACHED for too many partitions; after an error nothing has changed."""
        partitions = session.partitions
        new = dict.fromkeys(each for each in added if each not in partitions)
        if len(partitions) + len(new) > MAX_PARTITIONS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"a share session has at most {MAX_PARTITIONS} partitions")
        if new and self._partitions + len(new) > self._max_partitions:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"all share sessions have {self._partitions} partitions"
            )
        before = len(partitions)
        partitions.update(new)
        for each in forgotten:
            partitions.pop(each, None)
        self._partitions += len(partitions) - before

    def next(self, group_id: str, member_id: str, epoch: int, connection: object) -> ShareSession:
        """Return the session of a member's next request; the session belongs to this connection from now on. A request
        that closes the session has the epoch CLOSE_SESSION. Raises KafkaError SHARE_SESSION_NOT_FOUND,
        INVALID_SHARE_SESSION_EPOCH.
        """
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
        if self.is_open(session):
            del self._sessions[session.group_id, session.member_id]
            self._partitions -= len(session.partitions)
            self._of_groups[session.group_id] -= 1
            if not self._of_groups[session.group_id]:
                del self._of_groups[session.group_id]

    def lose(self, connection: object) -> list[ShareSession]:
        """Close the sessions of a connection that has ended, and return them."""
        lost = [session for session in self._sessions.values() if session.connection is connection]
        for session in lost:
            self.close(session)
        return lost
