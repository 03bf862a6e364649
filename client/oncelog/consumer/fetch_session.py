"""The client's half of incremental fetch sessions (KIP-227), one session per node. In a session, a Fetch request names
only the partitions that have changed since the last request.

Pure. `request` builds the next request; `answered` and `failed` record the outcome of that request. If a node creates
no session (session id 0, or Fetch before v7), every request names all partitions and requests a session again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from oncelog.cluster import TopicPartition
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.fetch import FetchRequest

FetchPartition = FetchRequest.FetchTopic.FetchPartition

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 2**31 - 1


class SessionRequest(NamedTuple):
    """The part of a Fetch request that depends on the session."""

    session_id: int
    session_epoch: int
    to_send: Mapping[TopicPartition, FetchPartition]
    to_forget: Sequence[TopicPartition]


class LogEnds(NamedTuple):
    """High watermark, last stable offset and log start offset of a partition, from the last response that has them."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class FetchSession:
    """Invariant: `_known` is the content of the node's session as soon as the node has responded to the last request.

    A node omits values that it has already sent in this session, so `ends` stores the last values of each partition.
    """

    __slots__ = ("_epoch", "_known", "_session_id", "ends")

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: dict[TopicPartition, FetchPartition] = {}
        self.ends: dict[TopicPartition, LogEnds] = {}

    @property
    def is_open(self) -> bool:
        return self._session_id != NO_SESSION

    def request(self, wanted: Mapping[TopicPartition, FetchPartition]) -> SessionRequest:
        """Return the session part of the request for the partitions `wanted`: all partitions in a new session,
        otherwise the changes since the last request. At most one request is outstanding.
        """
        known, self._known = self._known, dict(wanted)
        if self._epoch == INITIAL_EPOCH:
            return SessionRequest(self._session_id, INITIAL_EPOCH, wanted, ())
        changed = {partition: asked for partition, asked in wanted.items() if known.get(partition) != asked}
        forgotten = [partition for partition in known if partition not in wanted]
        for partition in forgotten:
            self.ends.pop(partition, None)
        return SessionRequest(self._session_id, self._epoch, changed, forgotten)

    def answered(self, session_id: int) -> None:
        """Record a Fetch response of this session."""
        if session_id == NO_SESSION:
            self._session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
        elif self._epoch == INITIAL_EPOCH:
            self._session_id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1

    def failed(self, code: int = ErrorCode.NONE) -> None:
        """Record that a Fetch request failed: the next request starts a new session and closes the old session."""
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known = {}
        self.ends = {}

    def closing(self) -> SessionRequest:
        """Return the request that ends the session."""
        session_id, self._session_id = self._session_id, NO_SESSION
        self.failed()
        return SessionRequest(session_id, FINAL_EPOCH, {}, ())
