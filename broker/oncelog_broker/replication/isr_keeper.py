"""Keeps the ISR of what this broker leads: who lags is proposed to leave it, who has caught up to join it.

The controller decides (AlterPartition). There is one request to it at a time, with all that came up meanwhile. Where no
answer came, nobody knows what was decided: the same is asked again until the image, or an answer, shows a newer state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple

from oncelog_broker.metadata.model.image import ImageView
from oncelog_broker.replication.isr import changed_isr
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.peers import PeerUnavailable
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.host import Host
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

logger = logging.getLogger(__name__)

TopicData = AlterPartitionRequest.TopicData
PartitionData = TopicData.PartitionData
BrokerState = PartitionData.BrokerState
PartitionAnswer = AlterPartitionResponse.TopicData.PartitionData

CHECK_SECONDS: Final = 0.5
"""The interval of the checks for lagging followers: a replica leaves the ISR at most this much after
replica.lag.time.max.ms."""
RETRY_SECONDS: Final = 0.2
"""Before an unanswered proposal is made again, and before one that was refused may be followed by another."""
PARTITIONS_PER_TURN: Final = 500
MAX_PROPOSALS: Final = 1000
"""In one request."""
REFUSED: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""The state is what the proposal named, and stays so."""
UNKNOWN_BROKER_EPOCH: Final = -1
ASK_AGAIN: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR})

AlterPartition = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
"""Asks the controller, wherever it is. Raises PeerUnavailable: nobody knows whether it was asked."""


class Proposal(NamedTuple):
    """What was proposed for a partition, and what it was a change of."""

    partition: Partition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    epochs: Mapping[int, int]
    """Broker epochs of the incarnations that were seen to be in sync: another one may lack what they had."""

    @property
    def is_open(self) -> bool:
        """Whether nothing newer is known than what it was a change of."""
        partition, in_sync = self.partition, self.partition.in_sync
        return (
            not partition.is_resigned
            and partition.leader_epoch == self.leader_epoch
            and in_sync.proposed == self.isr
            and in_sync.partition_epoch == self.partition_epoch
        )


class IsrKeeper:
    """Of one broker."""

    def __init__(
        self,
        broker_id: int,
        replicas: Replicas,
        metadata: ImageView,
        alter_partition: AlterPartition,
        lag_seconds: Callable[[], float],
        host: Host,
    ) -> None:
        """`lag_seconds` gives replica.lag.time.max.ms, as it is now."""
        self._broker_id = broker_id
        self._replicas = replicas
        self._metadata = metadata
        self._alter_partition = alter_partition
        self._lag_seconds = lag_seconds
        self._clock = host.clock
        self._tasks = host.tasks
        self._open: dict[Partition, Proposal] = {}
        self._not_before: dict[Partition, float] = {}
        """When the next proposal for a partition may come whose last one was refused."""
        self._work: asyncio.Task[None] | None = None
        self._giving_away: asyncio.Task[None] | None = None
        self._asking_for_epochs: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look for those that lag, from now on; ends with the broker's tasks."""
        self._tasks.every("in-sync replicas", CHECK_SECONDS, self.look)

    async def look(self) -> None:
        """Propose what has to be, for all partitions that this broker leads."""
        now = self._clock.monotonic()
        self._not_before = {partition: until for partition, until in self._not_before.items() if until > now}
        for number, partition in enumerate(list(self._replicas.led())):
            if partition.followers:
                self._propose(partition)
            if number % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
        if self._giving_away is None or self._giving_away.done():
            request = self._without_what_is_offline()
            if request.topics:
                self._giving_away = self._tasks.spawn(
                    "give away what is offline", self._ask_once(request, "an offline partition stays ours")
                )

    def ask_for_new_epochs(self, partitions: Collection[tuple[str, int]]) -> None:
        """Of partitions that others lead, so that the logs of them that failed here may begin again
        (`returning_logs`): each is proposed the ISR that it has, by a replica which is not in it."""
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
        """A follower of these has caught up, it seems."""
        for partition in partitions:
            self._propose(partition)

    def _propose(self, partition: Partition) -> None:
        now = self._clock.monotonic()
        if self._not_before.get(partition, now) > now:
            return
        isr = partition.wanted_isr(now=now, lag_seconds=self._lag_seconds(), is_eligible=self._is_eligible)
        if isr is None:
            return
        logger.info("proposing an ISR", extra={"partition": partition.log.name, "from": partition.isr, "to": isr})
        epochs = {other: follower.broker_epoch for other, follower in partition.followers.items()}
        epochs[self._broker_id] = self._own_epoch()
        self._open[partition] = Proposal(
            partition, partition.leader_epoch, partition.in_sync.partition_epoch, isr, epochs
        )
        partition.propose_isr(isr)
        if self._work is None or self._work.done():
            self._work = self._tasks.supervise("propose in-sync replicas", self._ask)

    def _is_eligible(self, broker_id: int, epoch: int) -> bool:
        """Whether that incarnation of a broker is alive, as far as we know (KIP-903)."""
        broker = self._metadata.image.brokers.get(broker_id)
        return broker is not None and broker.epoch == epoch

    # --- asking

    async def _ask(self) -> None:
        """Until every proposal is answered, or outdated."""
        while True:
            # Several appends and fetches of a turn may have led to proposals: they go together.
            await asyncio.sleep(0)
            self._open = {partition: proposal for partition, proposal in self._open.items() if proposal.is_open}
            proposals = list(self._open.values())[:MAX_PROPOSALS]
            if not proposals:
                return
            try:
                response = await self._alter_partition(self._request(proposals))
            except PeerUnavailable as error:
                logger.warning("the controller does not answer", extra={"reason": error})
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except Exception:  # the proposals stay open, and nobody else asks about them
                logger.exception("the controller could not be asked")
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if response.error_code:
                logger.warning("the controller refuses", extra={"error": ErrorCode.of(response.error_code).name})
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if not self._take_all(proposals, response):
                await asyncio.sleep(RETRY_SECONDS)

    async def _ask_once(self, request: AlterPartitionRequest, if_refused: str) -> None:
        """Who looks the next time sees what is left."""
        try:
            response = await self._alter_partition(request)
        except PeerUnavailable as error:
            logger.warning("the controller does not answer", extra={"reason": error})
            return
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code not in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED):
                    logger.info(
                        if_refused,
                        extra={"topic_id": topic.topic_id.hex(), "partition": answer.partition_index,
                               "error": ErrorCode.of(answer.error_code).name},
                    )  # fmt: skip

    def _without_what_is_offline(self) -> AlterPartitionRequest:
        """The others of the ISR lead what we were given to lead and could not open. Where there are no others in the
        ISR, nobody leads: an operator sees it, and may have a replica elected that is not in sync.

        In which incarnation they were in sync we have not seen: that the controller must know.
        """
        request = self._empty_request()
        for topic, index, state in islice(self._replicas.led_offline(), MAX_PROPOSALS):
            isr = changed_isr(state.isr, [self._broker_id], ())
            if isr is not None:
                _add(request, topic.topic_id, index, state.leader_epoch, state.partition_epoch, isr, {})
            elif len(state.replicas) > 1:
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
        """Whether all were answered with something that ends them."""
        answers = {
            (topic.topic_id, answer.partition_index): answer for topic in response.topics for answer in topic.partitions
        }
        done = True
        for proposal in proposals:
            partition = proposal.partition
            answer = answers.get((partition.topic_id, partition.index))
            if answer is None or answer.error_code in ASK_AGAIN:
                code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else ErrorCode.of(answer.error_code)
                logger.warning("ISR not decided on", extra={"partition": partition.log.name, "error": code.name})
                done = False
                continue
            if (
                self._open.get(partition) is proposal
            ):  # else the image came before this answer, and another one after it
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
        logger.warning("ISR not changed", extra={"partition": partition.log.name, "error": code.name})
        if code in REFUSED:
            partition.withdraw_proposal()
            self._not_before[partition] = self._clock.monotonic() + RETRY_SECONDS
        # Else the state is newer than what we know, and the image will show it; until then both ISRs may be true.


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
    """One partition more. A request names few topics, and mostly the same one again."""
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
