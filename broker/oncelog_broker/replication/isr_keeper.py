"""Changes the ISR of the partitions that this broker leads (ISR shrink and ISR expand): proposes the removal of lagging
replicas and the return of replicas that have caught up.

The controller decides about each proposal (AlterPartition). Only one AlterPartition request is outstanding; it contains
all proposals made before it was sent. If no response arrives, the outcome is unknown: the proposal is repeated until
the cluster image or a response shows a newer state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Final

from oncelog_broker.metadata.model.image import ImageView
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.peers import PeerUnavailable
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.host import Host
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

logger = logging.getLogger(__name__)

TopicData = AlterPartitionRequest.TopicData
PartitionData = TopicData.PartitionData
BrokerState = PartitionData.BrokerState
PartitionAnswer = AlterPartitionResponse.TopicData.PartitionData

CHECK_SECONDS: Final = 0.5
"""Seconds between checks for lagging followers; a replica leaves the ISR at most this much later than
replica.lag.time.max.ms.
"""
RETRY_SECONDS: Final = 0.2
"""Seconds before a proposal without a response is repeated, and before a new proposal may follow a refused proposal.
"""
PARTITIONS_PER_TURN: Final = 500
MAX_PROPOSALS: Final = 1000
"""The maximum number of partitions in one AlterPartition request."""
REFUSED: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Error codes that mean that the proposal is permanently refused and the state is unchanged."""
UNKNOWN_BROKER_EPOCH: Final = -1
ASK_AGAIN: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR})

AlterPartition = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
"""Type of the async function that sends AlterPartition to the controller. The function raises PeerUnavailable; the
controller may then have received the request or not.
"""


class Proposal(NamedTuple):
    """A proposed ISR, and the partition state that it changes."""

    partition: Partition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    epochs: Mapping[int, int]
    """Maps the id of each broker in the proposed ISR to the broker epoch of the process that the leader saw in sync.
    After a restart, the new process has another broker epoch, and may have lost records.
    """

    @property
    def is_open(self) -> bool:
        """Whether the state that the proposal changes is still the newest known state."""
        partition, in_sync = self.partition, self.partition.in_sync
        return (
            not partition.is_resigned
            and partition.leader_epoch == self.leader_epoch
            and in_sync.proposed == self.isr
            and in_sync.partition_epoch == self.partition_epoch
        )


class IsrKeeper:
    """Proposes the ISRs of the partitions that one broker leads."""

    def __init__(
        self,
        broker_id: int,
        replicas: Replicas,
        metadata: ImageView,
        alter_partition: AlterPartition,
        lag_seconds: Callable[[], float],
        host: Host,
    ) -> None:
        """`lag_seconds` returns the present replica.lag.time.max.ms, in seconds."""
        self._broker_id = broker_id
        self._replicas = replicas
        self._metadata = metadata
        self._alter_partition = alter_partition
        self._lag_seconds = lag_seconds
        self._clock = host.clock
        self._tasks = host.tasks
        self._open: dict[Partition, Proposal] = {}
        self._not_before: dict[Partition, float] = {}
        """Maps a partition whose proposal was refused to the monotonic seconds before which no new proposal is made for
        it.
        """
        self._work: asyncio.Task[None] | None = None
        self._giving_up: asyncio.Task[None] | None = None
        self._asking_for_epochs: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Check for lagging replicas every CHECK_SECONDS, until the broker's tasks are cancelled."""
        self._tasks.every("in-sync replicas", CHECK_SECONDS, self.look)

    async def look(self) -> None:
        """Propose all ISR changes that are due for the partitions that this broker leads."""
        now = self._clock.monotonic()
        self._not_before = {partition: until for partition, until in self._not_before.items() if until > now}
        for number, partition in enumerate(list(self._replicas.led_with_followers())):
            self._propose(partition)
            if number % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
        if self._giving_up is None or self._giving_up.done():
            request = self._giving_up_what_is_offline()
            if request.topics:
                self._giving_up = self._tasks.spawn(
                    "give up leadership of offline partitions",
                    self._ask_once(request, "an offline partition stays ours"),
                )

    def ask_for_new_epochs(self, partitions: Collection[tuple[str, int]]) -> None:
        """Request new leader epochs for partitions that other brokers lead, so that their offline logs may be reopened
        here (`offline_log_recovery`). The request is an AlterPartition with the present ISR, sent by a replica outside
        the ISR.
        """
        if self._asking_for_epochs is not None and not self._asking_for_epochs.done():
            return
        image, request = self._metadata.image, self._empty_request()
        for name, index in islice(partitions, MAX_PROPOSALS):
            topic, state = image.topic(name), image.partition(name, index)
            if topic is not None and state is not None:
                _add(request, topic.topic_id, index, state.leader_epoch, state.partition_epoch, state.isr, {})
        if request.topics:
            self._asking_for_epochs = self._tasks.spawn(
                "ask for new epochs", self._ask_once(request, "no new leader epoch: an offline log stays as it is")
            )

    def consider(self, partitions: Iterable[Partition]) -> None:
        """Check whether replicas of these partitions may join the ISR, after a follower seems to have caught up."""
        for partition in partitions:
            self._propose(partition)

    def _propose(self, partition: Partition) -> None:
        now = self._clock.monotonic()
        if self._not_before.get(partition, now) > now:
            return
        isr = partition.wanted_isr(now=now, lag_seconds=self._lag_seconds(), is_eligible=self._is_eligible)
        if isr is None:
            return
        logger.info(
            "proposing an ISR change", extra={"partition": partition.log.name, "from": partition.isr, "to": isr}
        )
        epochs = {other: follower.broker_epoch for other, follower in partition.followers.items()}
        epochs[self._broker_id] = self._own_epoch()
        self._open[partition] = Proposal(
            partition, partition.leader_epoch, partition.in_sync.partition_epoch, isr, epochs
        )
        partition.propose_isr(isr)
        if self._work is None or self._work.done():
            self._work = self._tasks.supervise("propose in-sync replicas", self._ask)

    def _is_eligible(self, broker_id: int, epoch: int) -> bool:
        """Whether the broker is registered with exactly this broker epoch (KIP-903)."""
        broker = self._metadata.image.brokers.get(broker_id)
        return broker is not None and broker.epoch == epoch

    # --- requests

    async def _ask(self) -> None:
        """Send proposals until each has a final response, or is outdated by a newer state."""
        while True:
            # Appends and fetches in one loop iteration may cause several proposals; send them in one request.
            await asyncio.sleep(0)
            self._open = {partition: proposal for partition, proposal in self._open.items() if proposal.is_open}
            proposals = list(self._open.values())[:MAX_PROPOSALS]
            if not proposals:
                return
            try:
                response = await self._alter_partition(self._request(proposals))
            except PeerUnavailable as error:
                logger.warning("the controller does not answer AlterPartition", extra={"reason": error})
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except Exception:  # retry in this loop, because no other task repeats the open proposals
                logger.exception("AlterPartition could not be sent to the controller")
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if response.error_code:
                logger.warning(
                    "the controller refuses AlterPartition", extra={"error": ErrorCode.of(response.error_code).name}
                )
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if not self._take_all(proposals, response):
                await asyncio.sleep(RETRY_SECONDS)

    async def _ask_once(self, request: AlterPartitionRequest, if_refused: str) -> None:
        """Send the request once; if it fails, the next periodic check sends it again."""
        try:
            response = await self._alter_partition(request)
        except PeerUnavailable as error:
            logger.warning("the controller does not answer AlterPartition", extra={"reason": error})
            return
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code not in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED):
                    logger.info(
                        if_refused,
                        extra={"topic_id": topic.topic_id.hex(), "partition": answer.partition_index,
                               "error": ErrorCode.of(answer.error_code).name},
                    )  # fmt: skip

    def _giving_up_what_is_offline(self) -> AlterPartitionRequest:
        """Give up the leadership of partitions whose log is not open on this broker. The ISR stays unchanged, and the
        controller elects an ISR member that reports an open log. Until an ISR member reports an open log, the partition
        has no leader; an operator may order an unclean election.

        This broker does not know which other ISR members are alive, so it proposes no smaller ISR.
        """
        request = self._empty_request()
        for topic, index, state in islice(self._replicas.led_offline(), MAX_PROPOSALS):
            if len(state.replicas) > 1:
                _add(request, topic.topic_id, index, state.leader_epoch, state.partition_epoch, state.isr, {},
                     is_log_offline=True)  # fmt: skip
        return request

    def _request(self, proposals: Iterable[Proposal]) -> AlterPartitionRequest:
        request = self._empty_request()
        for partition, leader_epoch, partition_epoch, isr, epochs in proposals:
            _add(request, partition.topic_id, partition.index, leader_epoch, partition_epoch, isr, epochs)
        return request

    def _empty_request(self) -> AlterPartitionRequest:
        return AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=self._own_epoch(), topics=[])

    def _own_epoch(self) -> int:
        me = self._metadata.image.brokers.get(self._broker_id)
        return -1 if me is None else me.epoch

    def _take_all(self, proposals: Iterable[Proposal], response: AlterPartitionResponse) -> bool:
        """Process the response; returns whether it has a final result for every proposal."""
        answers = {
            (topic.topic_id, answer.partition_index): answer for topic in response.topics for answer in topic.partitions
        }
        done = True
        for proposal in proposals:
            partition = proposal.partition
            answer = answers.get((partition.topic_id, partition.index))
            if answer is None or answer.error_code in ASK_AGAIN:
                code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else ErrorCode.of(answer.error_code)
                logger.warning(
                    "ISR change not decided, retrying", extra={"partition": partition.log.name, "error": code.name}
                )
                done = False
                continue
            if self._open.get(partition) is proposal:  # keep a newer proposal of the partition open
                del self._open[partition]
            if proposal.is_open:
                self._take(partition, answer)
        return done

    def _take(self, partition: Partition, answer: PartitionAnswer) -> None:
        if not answer.error_code:
            if (answer.leader_id, answer.leader_epoch) == (self._broker_id, partition.leader_epoch):
                partition.adopt_isr(tuple(answer.isr), answer.partition_epoch)
            return
        code = ErrorCode.of(answer.error_code)
        logger.warning("ISR change refused", extra={"partition": partition.log.name, "error": code.name})
        if code in REFUSED:
            partition.withdraw_proposal()
            self._not_before[partition] = self._clock.monotonic() + RETRY_SECONDS
        # If the response neither accepts nor refuses the proposal, the controller has a newer state, which a later
        # cluster image contains. Until that image arrives, the members of both ISRs (committed and proposed) count.


def _add(
    request: AlterPartitionRequest,
    topic_id: bytes,
    index: int,
    leader_epoch: int,
    partition_epoch: int,
    isr: Iterable[int],
    epochs: Mapping[int, int],
    *,
    is_log_offline: bool = False,
) -> None:
    """Add one partition to the request; consecutive partitions mostly belong to the same topic."""
    topic = next((topic for topic in reversed(request.topics) if topic.topic_id == topic_id), None)
    if topic is None:
        topic = TopicData(topic_id=topic_id, partitions=[])
        request.topics.append(topic)
    members = [BrokerState(broker_id=member, broker_epoch=epochs.get(member, UNKNOWN_BROKER_EPOCH)) for member in isr]
    topic.partitions.append(
        PartitionData(
            partition_index=index,
            leader_epoch=leader_epoch,
            new_isr=list(isr),
            new_isr_with_epochs=members,
            partition_epoch=partition_epoch,
            is_log_offline=is_log_offline,
        )
    )
