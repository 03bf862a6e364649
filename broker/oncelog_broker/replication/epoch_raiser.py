"""Asks the controller for new leader epochs if a log of this broker has a newer epoch than the cluster's metadata
(`lost_epochs`).

The request is an AlterPartition with the last epoch of the log and an unchanged partition state. The controller then
writes a state with a new epoch, which all brokers see in their image.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Final

from oncelog_broker.metadata.model.image import ImageView
from oncelog_broker.replication.isr_keeper import AlterPartition
from oncelog_broker.replication.lost_epochs import LostEpoch
from oncelog_broker.replication.peers import PeerUnavailable
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.host import Host
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

logger = logging.getLogger(__name__)

TopicData = AlterPartitionRequest.TopicData
PartitionData = TopicData.PartitionData
BrokerState = PartitionData.BrokerState

LOOK_SECONDS: Final = 0.5
FIRST_REST_SECONDS: Final = 0.5
"""Seconds before a request for the same epochs is first repeated; the pause doubles with each further repetition."""
MAX_REST_SECONDS: Final = 30.0
MAX_PARTITIONS: Final = 1000
"""The maximum number of partitions in one AlterPartition request."""
START_ATTEMPTS: Final = 20
"""The maximum number of AlterPartition requests that the broker of a single-broker cluster sends before it serves
clients.
"""
ATTEMPT_SECONDS: Final = 0.1
"""Seconds between two AlterPartition requests of the broker of a single-broker cluster, before it serves clients."""
NAMES_IN_A_LINE: Final = 10
"""The maximum number of partitions that one log line names."""


class EpochRaiser:
    """Requests higher leader epochs for one broker's partitions."""

    def __init__(
        self,
        broker_id: int,
        replicas: Replicas,
        metadata: ImageView,
        alter_partition: AlterPartition,
        host: Host,
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._metadata = metadata
        self._alter_partition = alter_partition
        self._clock = host.clock
        self._tasks = host.tasks
        self._told: set[LostEpoch] = set()
        self._asked: set[LostEpoch] = set()
        self._rest_seconds = FIRST_REST_SECONDS
        self._not_before = 0.0
        """Monotonic time, in seconds, before which the same epochs are not requested again."""

    def start(self) -> None:
        """Search periodically for partitions that need a higher epoch, until the broker's tasks are cancelled."""
        self._tasks.every("leader epochs below those of logs", LOOK_SECONDS, self.look)

    async def look(self) -> None:
        """Request new epochs for partitions whose log has a newer leader epoch than the metadata, unless the same
        request was sent recently.
        """
        lost = set(self._replicas.lost_epochs)
        self._told &= lost
        if not lost:
            return
        self._tell(lost - self._told)
        self._told |= lost
        now = self._clock.monotonic()
        if lost == self._asked and now < self._not_before:
            return
        self._rest_seconds = (
            min(2 * self._rest_seconds, MAX_REST_SECONDS) if lost == self._asked else FIRST_REST_SECONDS
        )
        self._asked, self._not_before = lost, now + self._rest_seconds
        for some in _in_parts(sorted(lost)):
            await self._ask(some)

    def doubt_all(self) -> None:
        """Request new epochs for all partitions that this broker leads, because the metadata store is older than the
        logs.
        """
        for partition in self._replicas.led():
            self._replicas.lost_epochs.doubt(partition)

    async def until_raised(self, until_shown: Callable[[], Awaitable[None]]) -> None:
        """Wait until no partition of this broker has a leader epoch below the last leader epoch of its log. The broker
        of a single-broker cluster calls this before it serves clients. `until_shown` (async function) waits until the
        replicas have applied all partition states that were written before it was called. Partitions whose epoch cannot
        be raised remain without a leader; the background task that `start` runs continues to request higher epochs for
        them.
        """
        if self._replicas.lost_epochs:
            self.doubt_all()
        for _ in range(START_ATTEMPTS):
            if not self._replicas.lost_epochs:
                return
            self._not_before = 0.0
            await self.look()
            await until_shown()
            if self._replicas.lost_epochs:
                await asyncio.sleep(ATTEMPT_SECONDS)
        logger.error(
            "partitions stay without a leader: the controller granted no leader epoch above the epoch of their logs"
        )

    async def _ask(self, lost: Iterable[LostEpoch]) -> None:
        try:
            response = await self._alter_partition(self._request(lost))
        except PeerUnavailable as error:
            logger.warning("the controller does not respond to a request for leader epochs", extra={"reason": error})
            return
        if response.error_code:
            logger.warning(
                "the controller refuses a request for leader epochs",
                extra={"error": ErrorCode.of(response.error_code).name},
            )
        for name, count in _refusals(response).items():
            logger.warning("leader epochs were not raised", extra={"error": name, "count": count})

    def _request(self, lost: Iterable[LostEpoch]) -> AlterPartitionRequest:
        image, topics = self._metadata.image, dict[str, TopicData]()
        for name, index, _, log_epoch, *_ in lost:
            topic, state = image.topic(name), image.partition(name, index)
            if topic is None or state is None:
                continue
            data = topics.setdefault(name, TopicData(topic_id=topic.topic_id, partitions=[]))
            data.partitions.append(
                PartitionData(
                    partition_index=index,
                    leader_epoch=state.leader_epoch,
                    new_isr=list(state.isr),
                    new_isr_with_epochs=[BrokerState(broker_id=member) for member in state.isr],
                    partition_epoch=state.partition_epoch,
                    log_epoch=log_epoch,
                )
            )
        me = image.brokers.get(self._broker_id)
        return AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=-1 if me is None else me.epoch, topics=list(topics.values())
        )

    def _tell(self, lost: Iterable[LostEpoch]) -> None:
        elected = [each for each in lost if each.is_to_lead and each.is_seen]
        following = [each for each in lost if not each.is_to_lead]
        if elected:
            logger.error(
                "this broker was elected with a leader epoch that its log already contains, so it does not "
                "lead yet and requests a higher epoch: the metadata store is older than the logs. If the store "
                "was restored from a backup, changes of topics, settings, users and ACLs since the backup are "
                "lost: repeat them",
                extra=_shown(elected),
            )
        if following:
            logger.error(
                "this replica's log has a newer leader epoch than its leader, so it does not fetch yet and "
                "requests a higher epoch: the metadata store is older than the logs. Afterwards this replica "
                "truncates records that the leader does not have. If you need these records, first stop this "
                "broker and copy the directories of its partitions",
                extra=_shown(following),
            )


def _in_parts(lost: Iterable[LostEpoch]) -> Iterable[list[LostEpoch]]:
    rest = iter(lost)
    while some := list(islice(rest, MAX_PARTITIONS)):
        yield some


def _refusals(response: AlterPartitionResponse) -> dict[str, int]:
    """Count the refused partitions by error."""
    counts: dict[str, int] = {}
    for topic in response.topics:
        for answer in topic.partitions:
            if answer.error_code:
                name = ErrorCode.of(answer.error_code).name
                counts[name] = counts.get(name, 0) + 1
    return counts


def _shown(lost: list[LostEpoch]) -> dict[str, object]:
    """Return fields for a log line: the first partitions by name, each with the epoch in its state and in its log."""
    first = sorted(lost)[:NAMES_IN_A_LINE]
    named = ", ".join(f"{each.topic}-{each.partition} ({each.leader_epoch}, log {each.log_epoch})" for each in first)
    return {"count": len(lost), "partitions": named + (" ..." if len(lost) > NAMES_IN_A_LINE else "")}
