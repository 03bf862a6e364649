"""Asks coordinators on other brokers whether partitions are in a transaction, or to add partitions to a transaction
(KIP-890).

At most one AddPartitionsToTxn request is in flight to each broker. Later verification questions are sent with the next
request, and callers that ask about the same producer share one question. A caller never shares a question that was sent
before the call: a marker may have been written since, so the answer could be outdated (E3).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.replication.peers import Peers, PeerUnavailable, Purpose
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from oncelog_protocol.producer_id import ProducerIdAndEpoch

logger = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 10.0
"""If a coordinator does not respond within this number of seconds, its response counts as lost."""
MAX_PARTITIONS: Final = 1000
"""Maximum number of partitions in one request, unless a single question has more partitions."""

Asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Codes = Mapping[TopicPartition, ErrorCode]


class Subject(NamedTuple):
    """The key of a question to a coordinator about the partitions of a transaction; callers with equal keys share one
    question.
    """

    transactional_id: str
    producer: ProducerIdAndEpoch
    registers: bool
    """Whether the coordinator adds the partitions to the transaction; if False, the coordinator only checks whether the
    partitions are in the transaction.
    """


class Question:
    """A question to a coordinator about one transaction. The question has the partitions and the future of each waiting
    caller. A request contains one or more questions.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.partitions: dict[TopicPartition, None] = {}
        self._askers: list[tuple[Collection[TopicPartition], asyncio.Future[ErrorCode]]] = []

    @property
    def is_wanted(self) -> bool:
        """Whether any caller still waits for the result of this question."""
        return any(not answer.done() for _, answer in self._askers)

    def join(self, partitions: Collection[TopicPartition]) -> asyncio.Future[ErrorCode]:
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.partitions.update(dict.fromkeys(partitions))
        self._askers.append((partitions, answer))
        return answer

    def answer(self, codes: Codes) -> None:
        """Complete the future of each caller: with NONE if `codes` has NONE for all of the caller's partitions,
        otherwise with the error of one of them. A partition without a code counts as COORDINATOR_NOT_AVAILABLE."""
        for partitions, answer in self._askers:
            if not answer.done():
                answer.set_result(_first_error(partitions, codes))


def _first_error(partitions: Collection[TopicPartition], codes: Codes) -> ErrorCode:
    found = {codes.get(partition, ErrorCode.COORDINATOR_NOT_AVAILABLE) for partition in partitions}
    found.discard(ErrorCode.NONE)
    # OPERATION_NOT_ATTEMPTED only means that another partition of the request has failed, perhaps a partition of
    # another caller.
    if ErrorCode.OPERATION_NOT_ATTEMPTED in found:
        found.discard(ErrorCode.OPERATION_NOT_ATTEMPTED)
        found = found or {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    return min(found, default=ErrorCode.NONE)


class RemoteCoordinators:
    """Client of the transaction coordinators on other brokers."""

    def __init__(self, peers: Peers, tasks: Tasks) -> None:
        self._peers = peers
        self._tasks = tasks
        self._waiting: dict[int, dict[Subject, Question]] = {}
        self._at_work: set[int] = set()

    def ask(
        self,
        broker_id: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        *,
        registers: bool,
    ) -> asyncio.Future[ErrorCode]:
        """Ask a coordinator about partitions. The result is NONE if all `partitions` are in the open transaction of
        `producer`; with `registers` the coordinator adds the partitions to the transaction. The result is
        COORDINATOR_NOT_AVAILABLE if the coordinator does not respond."""
        subject = Subject(transactional_id, producer, registers)
        waiting = self._waiting.setdefault(broker_id, {})
        question = waiting.get(subject)
        if question is None:
            question = waiting[subject] = Question(subject)
        answer = question.join(partitions)
        if broker_id not in self._at_work:
            self._at_work.add(broker_id)
            self._tasks.spawn(f"questions to the coordinators of broker {broker_id}", self._ask(broker_id))
        return answer

    async def _ask(self, broker_id: int) -> None:
        try:
            while questions := self._take(broker_id):
                codes: Mapping[str, Codes] = {}
                try:
                    response = await self._peers.send(
                        broker_id, request_of(questions), purpose=Purpose.VERIFICATION, timeout=ANSWER_SECONDS
                    )
                    codes = codes_of(response)
                    if response.error_code:
                        reason = ErrorCode.of(response.error_code).name
                        logger.error("coordinator refuses to answer", extra={"broker": broker_id, "reason": reason})
                except PeerUnavailable as error:
                    logger.warning("coordinator not asked", extra={"broker": broker_id, "reason": error})
                except Exception:  # the waiting callers must get a result after any exception (S85)
                    logger.exception("coordinator not asked", extra={"broker": broker_id})
                for question in questions:
                    question.answer(codes.get(question.subject.transactional_id, {}))
        finally:
            self._at_work.discard(broker_id)

    def _take(self, broker_id: int) -> list[Question]:
        """Remove the questions of the next request from the queue of waiting questions. The request has each
        transactional id only once, because the response identifies its entries by transactional id.
        """
        waiting = self._waiting.pop(broker_id, {})
        taken: dict[str, Question] = {}
        room = MAX_PARTITIONS
        for subject, question in waiting.items():
            if not question.is_wanted:
                continue
            if subject.transactional_id in taken or (taken and len(question.partitions) > room):
                self._waiting.setdefault(broker_id, {})[subject] = question
                continue
            taken[subject.transactional_id] = question
            room -= len(question.partitions)
        return list(taken.values())


def request_of(questions: Collection[Question]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(transactions=[_transaction(question) for question in questions])


def _transaction(question: Question) -> Asked:
    topics: dict[str, list[int]] = {}
    for topic, index in question.partitions:
        topics.setdefault(topic, []).append(index)
    subject = question.subject
    return Asked(
        transactional_id=subject.transactional_id,
        producer_id=subject.producer.producer_id,
        producer_epoch=subject.producer.epoch,
        verify_only=not subject.registers,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in topics.items()],
    )


def codes_of(response: AddPartitionsToTxnResponse) -> dict[str, dict[TopicPartition, ErrorCode]]:
    """Returns transactional id -> error code of each partition."""
    return {
        result.transactional_id: {
            TopicPartition(topic.name, partition.partition_index): ErrorCode.of(partition.partition_error_code)
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }
