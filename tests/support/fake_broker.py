"""A broker inside the test's own event loop, with real sockets and codecs and with responses that the test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.support.fake_transactions import HangUp
from tests.support.loop_turns import settle

from oncelog_protocol.api import ApiKey, request_header_version, request_type, response_header_version, response_type
from oncelog_protocol.codec import codec
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.messages.headers import RequestHeader, ResponseHeader
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog_protocol.messages.list_offsets import EARLIEST_TIMESTAMP, ListOffsetsRequest, ListOffsetsResponse
from oncelog_protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse
from oncelog_protocol.records.batch import BASE_OFFSET, RecordBatch, batches
from oncelog_protocol.records.record import read_records
from oncelog_protocol.schema import schema_of

FETCH_POLL_SECONDS = 0.005
SURELY_SECONDS = 10
NODE = 1

FetchData = FetchResponse.FetchableTopicResponse.PartitionData
ProduceAnswer = ProduceResponse.TopicProduceResponse


class FakeBroker:
    """A broker that leads all partitions.

    `handlers[RequestType] = f` replaces a handler: f(request) returns a response, or None to send no response.

    `logs[topic, partition]` are the batches as bytes, `requests` all requests in order, `versions` the API versions of
    the requests by request type, and `version` is the version of the request that is being handled. `finalized` maps
    each feature of the cluster to its level. `others` maps the node ids of further brokers in Metadata responses to
    their ports.
    """

    def __init__(self) -> None:
        self.topics: dict[str, int] = {"topic": 1}
        self.logs: dict[tuple[str, int], list[bytes]] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.requests: list[Any] = []
        self.versions: dict[type, list[int]] = {}
        self.version = -1
        self.finalized: dict[str, int] = {}
        self.others: dict[int, int] = {}
        self.handlers: dict[type, Callable[[Any], Any]] = {}
        self.max_versions: dict[int, int] = {}
        self.leader_epoch = 5
        self.connections = 0
        self.producer_ids = 1000
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrived = asyncio.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and close all connections; a later `start` listens on the same port again."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.hang_up()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await settle()

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def requests_of(self, kind: type) -> list[Any]:
        return [request for request in self.requests if isinstance(request, kind)]

    async def received(self, kind: type, count: int = 1) -> Any:
        """Wait until `count` requests of this type have arrived, and return the last of them."""
        async with asyncio.timeout(SURELY_SECONDS):
            while len(self.requests_of(kind)) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.requests_of(kind)[count - 1]

    def records(self, topic: str = "topic", partition: int = 0) -> list[Any]:
        return [
            record
            for data in self.logs.get((topic, partition), [])
            for batch in batches(data)
            for record in read_records(batch)
        ]

    def append(self, data: bytes, topic: str = "topic", partition: int = 0) -> int:
        place = (topic, partition)
        stored = bytearray(data)
        base_offset = self.ends.get(place, 0)
        BASE_OFFSET.pack_into(stored, 0, base_offset)
        self.logs.setdefault(place, []).append(bytes(stored))
        self.ends[place] = RecordBatch(stored).next_offset
        return base_offset

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._server is None:
            writer.transport.abort()  # close a connection that arrived just before the fake broker stopped
            return
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = await self._answer(await reader.readexactly(size))
                if answer is not None:
                    await self.reply(writer, len(answer).to_bytes(4, "big") + answer)
        except (HangUp, asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _answer(self, frame: bytes) -> bytes | None:
        key, version = ApiKey(int.from_bytes(frame[:2], "big")), int.from_bytes(frame[2:4], "big")
        header, position = codec(RequestHeader, request_header_version(key, version)).decode_from(frame)
        head = codec(ResponseHeader, response_header_version(key, version)).encode(
            ResponseHeader(correlation_id=header.correlation_id)
        )
        if key is ApiKey.API_VERSIONS and version > self.max_versions.get(key, 4):
            self.requests.append(version)
            refused = self._api_versions(ErrorCode.UNSUPPORTED_VERSION)
            return head + codec(ApiVersionsResponse, 0).encode(refused)
        request = codec(request_type(key), version).decode(frame, position)
        self.requests.append(request)
        self.versions.setdefault(type(request), []).append(version)
        self.version = version
        self._arrived.set()
        handler = self.handlers.get(type(request)) or getattr(self, f"on_{key.name.lower()}")
        response = handler(request)
        if asyncio.iscoroutine(response):
            response = await response
        if response is None or (isinstance(request, ProduceRequest) and request.acks == 0):
            return None
        return head + self.encoded(response, key, version)

    def encoded(self, response: Any, key: ApiKey, version: int) -> bytes:
        return bytes(codec(response_type(key), version).encode(response))

    async def reply(self, writer: asyncio.StreamWriter, frame: bytes) -> None:
        writer.write(frame)

    def _api_versions(self, error_code: int) -> ApiVersionsResponse:
        keys = [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.API_VERSIONS]
        keys += [ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.DELETE_RECORDS]
        keys += [ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP]
        keys += [ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.INIT_PRODUCER_ID]
        keys += [ApiKey(schema_of(kind).api_key) for kind in self.handlers]
        ranges = []
        for key in dict.fromkeys(keys):
            declared = schema_of(request_type(key)).versions
            high = self.max_versions.get(key, declared.high)
            ranges.append(ApiVersionsResponse.ApiVersion(api_key=key, min_version=declared.low, max_version=high))
        feature = ApiVersionsResponse.FinalizedFeatureKey
        return ApiVersionsResponse(
            error_code=error_code,
            api_keys=ranges,
            finalized_features_epoch=1,
            finalized_features=[
                feature(name=name, max_version_level=level, min_version_level=level)
                for name, level in self.finalized.items()
            ],
        )

    def on_init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        self.producer_ids += 1
        return InitProducerIdResponse(error_code=0, producer_id=self.producer_ids, producer_epoch=0)

    def on_api_versions(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        return self._api_versions(ErrorCode.NONE)

    def on_metadata(self, request: MetadataRequest) -> MetadataResponse:
        topic = MetadataResponse.MetadataResponseTopic
        names = list(self.topics) if request.topics is None else [str(wanted.name) for wanted in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=port)
                for node_id, port in {NODE: self.port, **self.others}.items()
            ],
            cluster_id="cluster",
            controller_id=NODE,
            topics=[
                topic(
                    name=name,
                    error_code=ErrorCode.NONE if name in self.topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    partitions=[
                        topic.MetadataResponsePartition(
                            error_code=0,
                            partition_index=index,
                            leader_id=NODE,
                            leader_epoch=self.leader_epoch,
                            replica_nodes=[NODE],
                            isr_nodes=[NODE],
                        )
                        for index in range(self.topics.get(name, 0))
                    ],
                )
                for name in names
            ],
        )

    def on_produce(self, request: ProduceRequest) -> ProduceResponse:
        return self.produced(request, lambda name, data: (0, self.append(data.records, name, data.index)))

    def produced(self, request: ProduceRequest, outcome: Callable[[str, Any], tuple[int, int]]) -> ProduceResponse:
        """Handle each batch by outcome(topic, partition data), which returns (error code, base offset)."""
        responses = []
        for topic in request.topic_data:
            answers = []
            for data in topic.partition_data:
                error_code, base_offset = outcome(topic.name, data)
                answers.append(
                    ProduceAnswer.PartitionProduceResponse(
                        index=data.index, error_code=error_code, base_offset=base_offset
                    )
                )
            responses.append(ProduceAnswer(name=topic.name, partition_responses=answers))
        return ProduceResponse(responses=responses)

    async def on_fetch(self, request: FetchRequest) -> FetchResponse:
        deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        while True:
            response = self.fetched(request)
            has_news = any(data.records or data.error_code for topic in response.responses for data in topic.partitions)
            if has_news or asyncio.get_running_loop().time() >= deadline:
                return response
            await asyncio.sleep(FETCH_POLL_SECONDS)

    def fetched(self, request: FetchRequest) -> FetchResponse:
        responses = []
        for topic in request.topics:
            partitions = []
            for wanted in topic.partitions:
                place = (topic.topic, wanted.partition)
                end = self.ends.get(place, 0)
                data = [
                    batch for batch in self.logs.get(place, []) if RecordBatch(batch).last_offset >= wanted.fetch_offset
                ]
                is_outside = wanted.fetch_offset > end
                partitions.append(
                    FetchData(
                        partition_index=wanted.partition,
                        error_code=ErrorCode.OFFSET_OUT_OF_RANGE if is_outside else ErrorCode.NONE,
                        high_watermark=end,
                        last_stable_offset=end,
                        log_start_offset=0,
                        records=b"".join(data[:2]),
                    )
                )
            responses.append(FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=partitions))
        return FetchResponse(responses=responses)

    def on_list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        answer = ListOffsetsResponse.ListOffsetsTopicResponse
        return ListOffsetsResponse(
            topics=[
                answer(
                    name=topic.name,
                    partitions=[
                        answer.ListOffsetsPartitionResponse(
                            partition_index=wanted.partition_index,
                            error_code=0,
                            offset=0
                            if wanted.timestamp == EARLIEST_TIMESTAMP
                            else self.ends.get((topic.name, wanted.partition_index), 0),
                        )
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
