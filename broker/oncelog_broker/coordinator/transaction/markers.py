"""Appends the marker of a transaction to a partition that this broker leads (S39), for the coordinator of this broker
and for WriteTxnMarkers requests of other coordinators.

After a successful response the coordinator no longer sends the marker. So the response waits until all in-sync replicas
have the marker. If the log has refused the marker because it has a later producer epoch, the response waits until all
in-sync replicas have this epoch. Without this wait the end of a transaction could be lost together with a leader.

A log refuses markers with a coordinator epoch below the coordinator epoch of the last marker (S40). If a log accepted a
marker with a coordinator epoch that is too high, because no coordinator has had it, the log would refuse all correct
markers permanently. To refuse such a marker, this broker compares the marker's epoch with the leader epochs of
`__transaction_state` in the cluster image. A new coordinator may be missing from this broker's cluster image at first;
its markers are then refused, and it sends them again.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from oncelog.fail_points.point import fail_point
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.runtime import CoordinatorRuntime
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.metadata.model.image import ClusterImage, ImageView, Topic
from oncelog_broker.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.answers import Answer, then
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.control import ControlType, EndTransactionMarker

logger = logging.getLogger(__name__)


class Marker(NamedTuple):
    """The contents of the end marker of a transaction, without the partition. `producer` is the producer id and epoch
    in the marker."""

    producer: ProducerIdAndEpoch
    commits: bool
    coordinator_epoch: int
    transaction_version: int


class MarkerAppender:
    """Appends markers to the partitions that this broker leads. A marker in `__consumer_offsets` also commits or drops
    the transaction's offsets."""

    def __init__(self, replicas: Replicas, groups: CoordinatorRuntime[GroupMachine], metadata: ImageView) -> None:
        self._replicas = replicas
        self._groups = groups
        self._metadata = metadata
        self._image: ClusterImage | None = None
        self._log_of_transactions: Topic | None = None
        self._newest_epoch = 0
        """The largest leader epoch of the partitions of `__transaction_state` in the cluster image `_image`, at least
        0; no coordinator in this image has a larger epoch.
        """
        self._last = Marker(ProducerIdAndEpoch(-1, -1), False, -1, 0), EndTransactionMarker(ControlType.ABORT, -1)
        """The last appended marker, with its encoded batch, since the same marker is appended to several logs."""

    @fail_point("marker-sent", dropped=lambda: ErrorCode.REQUEST_TIMED_OUT)
    def append(self, marker: Marker, where: TopicPartition) -> Answer[ErrorCode]:
        """Append a transaction marker to a partition. Returns NONE when the marker is on all in-sync replicas,
        otherwise the error code. INVALID_PRODUCER_EPOCH means that a later epoch of this producer is on all in-sync
        replicas, so the log does not need this marker.
        """
        if where.topic == TRANSACTION_STATE:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # no transaction can write to this topic, so no marker is valid
        if marker is not self._last[0]:
            control_type = ControlType.COMMIT if marker.commits else ControlType.ABORT
            self._last = marker, EndTransactionMarker(control_type, marker.coordinator_epoch)
        producer_id, epoch = marker.producer
        partition = None
        try:
            partition = self._replicas.led_by_name(where.topic, where.partition)
            if self._metadata.image is not self._image or marker.coordinator_epoch > self._newest_epoch:
                self._check_is_from_a_coordinator(marker, partition)
            offset = partition.append_marker(
                self._last[1],
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_version=marker.transaction_version,
            )
        except KafkaError as error:
            if partition is not None and error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                return then(partition.committed(partition.log.log_end_offset), _unless_lost)
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                logger.warning("marker not written", extra={"partition": "-".join(map(str, where)), "reason": error})
            return error.code
        except Exception:  # an error here must not stop the markers of other partitions; the sender retries this marker
            logger.exception("marker not written", extra={"partition": "-".join(map(str, where))})
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if where.topic == CONSUMER_OFFSETS:
            self._groups.end_transaction(where.partition, producer_id, committed=marker.commits)
        return ErrorCode.NONE if offset < partition.high_watermark else partition.committed(offset + 1)

    def _check_is_from_a_coordinator(self, marker: Marker, partition: Partition) -> None:
        """Raises KafkaError UNKNOWN_LEADER_EPOCH, which the sender retries, if no coordinator in this broker's cluster
        image has the marker's epoch. An epoch that the log already has for this producer is accepted, because such a
        marker does not make the log refuse later markers. Tools that end a hanging transaction send such an epoch.
        """
        self._image = self._metadata.image
        topic = self._image.topic(TRANSACTION_STATE)
        if topic is not self._log_of_transactions:
            self._log_of_transactions = topic
            epochs = [] if topic is None else [state.leader_epoch for state in topic.partitions.values()]
            self._newest_epoch = max([0, *epochs])
        if marker.coordinator_epoch <= self._newest_epoch:
            return
        known = partition.log.producer_state.get(marker.producer.producer_id)
        if known is None or marker.coordinator_epoch > known.coordinator_epoch:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"a marker of coordinator epoch {marker.coordinator_epoch}: the newest known is {self._newest_epoch}",
            )


def _unless_lost(code: ErrorCode) -> ErrorCode:
    """Return the result for a marker that the log has refused because of a later producer epoch. `code` is the result
    of waiting for the in-sync replicas. NONE means that they all have the later epoch, and becomes
    INVALID_PRODUCER_EPOCH; any other code is returned unchanged.
    """
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.NONE else code
