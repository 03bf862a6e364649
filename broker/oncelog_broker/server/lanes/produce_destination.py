"""A destination of Produce requests that the fast lane remembers, and the template of the responses."""

from __future__ import annotations

from dataclasses import replace
from struct import Struct
from typing import TYPE_CHECKING, Final

from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.replication.partition import Partition
from oncelog_broker.server.lanes.repeated import RightsNeeded
from oncelog_broker.server.records.transactional_append import FIRST_TRANSACTIONS_V2_VERSION
from oncelog_protocol.codec import codec
from oncelog_protocol.features import TRANSACTIONS_V2
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse
from oncelog_protocol.records.batch import TRANSACTIONAL_BIT
from oncelog_protocol.templates import Pattern, changing

if TYPE_CHECKING:
    from oncelog_broker.coordinator.transaction.usual_transactions import UsualTransactions

ANSWER_FIELDS: Final = ("base_offset", "log_append_time_ms", "log_start_offset")
"""The fields that change from one response to the next; they are adjacent."""

TopicData = ProduceRequest.TopicProduceData
PartitionData = TopicData.PartitionProduceData
TopicResponse = ProduceResponse.TopicProduceResponse


class Destination:
    """The destination of requests with the same head, and the template of their responses."""

    __slots__ = (
        "answer",
        "answer_head",
        "answer_middle",
        "answer_size",
        "answer_tail",
        "client_id",
        "partition",
        "request",
        "request_tail",
        "required_acks",
        "rights",
        "timeout_seconds",
        "transaction_version",
        "transactional",
        "transactions",
        "where",
    )

    def __init__(
        self,
        partition: Partition,
        request: ProduceRequest,
        version: int,
        rights: RightsNeeded,
        request_tail: bytes,
        answer: Pattern,
        client_id: str | None,
        transactions: UsualTransactions | None,
    ) -> None:
        """`answer`: the response after its size and correlation id; only ANSWER_FIELDS and the throttle time differ
        from one response to the next. `transactions`: verifies the partition in the transactions of the request's
        transactional id; None if the handler must do it, or if the request has no transactional id.
        """
        self.partition = partition
        self.transactions = transactions
        self.where = frozenset({TopicPartition(partition.topic, partition.index)})
        self.client_id = client_id
        topic = request.topic_data[0]
        destination = TopicData(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_data=[PartitionData(index=topic.partition_data[0].index, records=None)],
        )
        self.request = replace(request, topic_data=[destination])
        """The request that created this destination, without its records."""
        self.required_acks = request.acks
        self.timeout_seconds = max(0, request.timeout_ms) / 1000
        self.rights = rights
        """The rights that the principal needs for this destination; each right is the kind and name of an ACL rule."""
        self.transactional = 0 if request.transactional_id is None else TRANSACTIONAL_BIT
        self.transaction_version = 0 if version < FIRST_TRANSACTIONS_V2_VERSION else TRANSACTIONS_V2
        self.request_tail = request_tail
        self.answer_head, *_, self.answer_middle, self.answer_tail = answer.kept
        layout = Struct(f">ii{len(self.answer_head)}sqqq{len(self.answer_middle)}si{len(self.answer_tail)}s")
        self.answer = layout.pack
        self.answer_size = layout.size - 4


def answer_to(topic: TopicData, data: PartitionData, version: int, *, flexible: bool) -> Pattern:
    """Return the template of the response to requests that write to this partition. The template does not contain the
    response's size and correlation id. `flexible`: whether the response header has tagged fields. Raises NoTemplate.
    """
    answered = TopicResponse.PartitionProduceResponse(index=data.index, error_code=0, base_offset=0)
    response = ProduceResponse(
        responses=[TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answered])]
    )
    encode = codec(ProduceResponse, version).encode
    places = [*((answered, name) for name in ANSWER_FIELDS), (response, "throttle_time_ms")]
    pattern = changing(lambda: encode(response), *places)
    return pattern.behind(b"\0" if flexible else b"")
