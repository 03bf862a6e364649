"""Writing the ends of transactions into the logs of their partitions (S39).

`MarkerAppender` writes one marker where this broker leads: what WriteTxnMarkers does for another broker's coordinator,
and what our own coordinator does for itself. `write_all` goes on until a transaction's last marker is written, however
often a partition fails meanwhile (E7).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from oncelog.fail_points.point import fail_point
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.runtime import CoordinatorRuntime
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.slices import Pauses
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.control import ControlType, EndTransactionMarker

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.1
"""How soon a partition is tried again; twice as long each time, up to the next."""
MAX_RETRY_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 30.0
"""When a marker is not acknowledged in this time its answer counts as lost: the marker is sent again, which does no
harm where it was written (S39)."""
MARKERS_SECONDS: Final = 0.008
"""Markers are written for so long before other work gets its turn: some 200, or 15 that each roll a segment."""
NEEDS_NO_MARKER: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the topic is deleted
        # The log has seen a later epoch, so a marker that ended this transaction: sent again after a restart (S39).
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""The answers after which a partition is done with."""


class Marker(NamedTuple):
    """The end of one producer's transaction, for any partition."""

    producer: ProducerIdAndEpoch
    commits: bool
    coordinator_epoch: int
    transaction_version: int


class MarkerAppender:
    """Appends markers to the partitions that this broker leads; committed offsets become visible with theirs."""

    def __init__(self, replicas: Replicas, groups: CoordinatorRuntime[GroupMachine]) -> None:
        self._replicas = replicas
        self._groups = groups

    @fail_point("marker-sent", dropped=lambda: ErrorCode.REQUEST_TIMED_OUT)
    def append(self, marker: Marker, where: TopicPartition) -> Answer[ErrorCode]:
        """NONE when the marker is on all replicas in sync, or why it may not be."""
        if where.topic == TRANSACTION_STATE:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # nobody writes there in a transaction, so none ends there
        control_type = ControlType.COMMIT if marker.commits else ControlType.ABORT
        producer_id, epoch = marker.producer
        try:
            partition = self._replicas.leader(where.topic, where.partition)
            offset = partition.append_marker(
                EndTransactionMarker(control_type, marker.coordinator_epoch),
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_version=marker.transaction_version,
            )
        except KafkaError as error:
            if error.code not in NEEDS_NO_MARKER:
                logger.warning("marker not written", extra={"partition": "-".join(map(str, where)), "reason": error})
            return error.code
        except Exception:  # whatever it is, the other partitions get their markers, and this one is tried again
            logger.exception("marker not written", extra={"partition": "-".join(map(str, where))})
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if where.topic == CONSUMER_OFFSETS:
            self._groups.end_transaction(where.partition, producer_id, committed=marker.commits)
        return partition.committed(offset + 1)


class Fenced(Exception):
    """Another coordinator has this transaction now (S40)."""


async def write_all(
    append: Callable[[Marker, TopicPartition], Answer[ErrorCode]],
    marker: Marker,
    partitions: Collection[TopicPartition],
    goes_on: Callable[[], bool],
    pauses: Pauses,
) -> None:
    """Return when every partition has its marker. Raises Fenced if a log knows a later coordinator, or if `goes_on`
    says that this broker coordinates no more.

    Others have their turn after each slice, however few markers that was: one may roll a segment, which opens files. A
    single marker is written at once, however late it is.
    The producer of a large transaction may come back before it is complete; it is told CONCURRENT_TRANSACTIONS, and its
    client backs off for 20 ms or more.
    """
    left = sorted(partitions)
    pause = RETRY_SECONDS
    while left:
        failed: list[TopicPartition] = []
        late: list[tuple[TopicPartition, asyncio.Future[ErrorCode]]] = []
        for number, where in enumerate(left):
            if number:
                await pauses.here()
            if not goes_on():
                raise Fenced
            answer = append(marker, where)
            if isinstance(answer, asyncio.Future):
                late.append((where, answer))
            elif not _is_done_with(answer):
                failed.append(where)
        if late:
            await asyncio.wait([answer for _, answer in late], timeout=ANSWER_SECONDS)
            failed += [where for where, answer in late if not _is_done_with(_code_of(answer))]
        left = failed
        if left:
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_RETRY_SECONDS)


def _code_of(answer: asyncio.Future[ErrorCode]) -> ErrorCode:
    """What a late answer says; one that is not there counts as lost, and nobody waits for it any more."""
    if not answer.done():
        answer.cancel()
    return ErrorCode.REQUEST_TIMED_OUT if answer.cancelled() else answer.result()


@fail_point("marker-acknowledged", dropped=lambda: False)
def _is_done_with(code: ErrorCode) -> bool:
    """Whether a partition that answers so needs no marker any more. Raises Fenced."""
    if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        raise Fenced
    return code in NEEDS_NO_MARKER
