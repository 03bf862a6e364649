"""An admin client for one partition in memory, which answers like the leader of the sink's state topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from oncelog import TopicPartition
from oncelog.cluster import Partition, Topic
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.messages.list_offsets import LATEST_TIMESTAMP, ListOffsetsRequest, ListOffsetsResponse
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.builder import single_record_batch
from oncelog_protocol.records.control import ControlType, EndTransactionMarker, marker_batch

Data = FetchResponse.FetchableTopicResponse.PartitionData


class StateLog:
    """Stands for an admin client, and answers as the leader of the state topic. `fetched` has the offset of each Fetch
    request.
    """

    config = SimpleNamespace(retry_backoff_ms=100)

    def __init__(self) -> None:
        self.batches: list[bytearray] = []
        self.aborted: list[tuple[int, int]] = []
        """Producer id and first offset of each aborted transaction."""
        self.last_stable_offset = 0
        self.topic_id = b"1" * 16
        self.leader_epoch = 5
        self.start = 0
        self.batches_at_once = 100
        self.errors: list[ErrorCode] = []
        """The errors with which the next Fetch requests are answered."""
        self.lag = 0
        """For this many ListOffsets requests, the high watermark of the new leader is 0, below acknowledged records."""
        self.fetched: list[int] = []

    @property
    def end(self) -> int:
        return RecordBatch(self.batches[-1]).next_offset if self.batches else self.start

    def add(self, key: bytes, value: bytes | None, *, commits: bool | None = True, producer_id: int = 1) -> None:
        """Append a transaction of one record, and its marker; with `commits=None` the transaction stays open."""
        first = self.end
        self._append(
            single_record_batch(1000, key, value, producer_id=producer_id, producer_epoch=0, transactional=True)
        )
        if commits is None:
            return
        kind = ControlType.COMMIT if commits else ControlType.ABORT
        self._append(
            marker_batch(EndTransactionMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=0)
        )
        if not commits:
            self.aborted.append((producer_id, first))
        self.last_stable_offset = self.end

    def _append(self, batch: bytearray) -> None:
        batch[:8] = self.end.to_bytes(8, "big")
        self.batches.append(batch)

    # what a client of oncelog offers

    async def describe_topics(self, names: list[str]) -> dict[str, Topic]:
        (name,) = names
        return {name: Topic(name, self.topic_id, partitions={0: Partition(0, 7, self.leader_epoch)})}

    async def list_offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        return {partition: SimpleNamespace(offset=self.start) for partition in wanted}

    async def send_to(self, node: int, request: Any) -> Any:
        assert node == 7
        return self._end_of_log(request) if isinstance(request, ListOffsetsRequest) else self._fetch(request)

    def _end_of_log(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        wanted = request.topics[0].partitions[0]
        assert (wanted.timestamp, wanted.current_leader_epoch) == (LATEST_TIMESTAMP, self.leader_epoch)
        answer = ListOffsetsResponse.ListOffsetsTopicResponse
        found = answer.ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=self.end)
        if self.lag:
            self.lag -= 1
            found.error_code = ErrorCode.OFFSET_NOT_AVAILABLE
        return ListOffsetsResponse(topics=[answer(name=request.topics[0].name, partitions=[found])])

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        wanted = request.topics[0].partitions[0]
        last_stable_offset = 0 if self.lag else self.last_stable_offset
        readable = last_stable_offset if request.isolation_level else 0 if self.lag else self.end
        self.fetched.append(wanted.fetch_offset)
        data = Data(partition_index=0, error_code=0, high_watermark=0 if self.lag else self.end)
        if self.errors:
            data.error_code = self.errors.pop(0)
        elif wanted.current_leader_epoch not in (self.leader_epoch, -1):
            data.error_code = ErrorCode.FENCED_LEADER_EPOCH
        elif not self.start <= wanted.fetch_offset <= self.end:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            data.last_stable_offset = last_stable_offset
            found = [
                batch for batch in self.batches if wanted.fetch_offset <= RecordBatch(batch).last_offset < readable
            ]
            data.records = b"".join(found[: self.batches_at_once])
            data.aborted_transactions = [
                Data.AbortedTransaction(producer_id=producer_id, first_offset=first)
                for producer_id, first in self.aborted
            ]
        answer = FetchResponse.FetchableTopicResponse(topic=request.topics[0].topic, partitions=[data])
        return FetchResponse(responses=[answer])
