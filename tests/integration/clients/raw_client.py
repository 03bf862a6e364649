"""Sends requests that oncelog's codec encodes over one blocking socket, for tests of raw batches and lost
connections.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from struct import Struct
from typing import Any

from oncelog_protocol.api import ApiKey, request_header_version, request_type, response_header_version, response_type
from oncelog_protocol.codec import codec
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_protocol.messages.describe_configs import ResourceType
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.headers import RequestHeader, ResponseHeader
from oncelog_protocol.messages.incremental_alter_configs import ConfigOperation, IncrementalAlterConfigsRequest
from oncelog_protocol.messages.list_offsets import LATEST_TIMESTAMP, ListOffsetsRequest
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.records.batch import RecordBatch, batches

TIMEOUT_SECONDS = 60.0
SIZE = Struct(">i")

PRODUCE_VERSION = 9
FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 7
CREATE_TOPICS_VERSION = 5
ALTER_CONFIGS_VERSION = 1


def frame(request: Any, key: ApiKey, version: int, correlation_id: int = 0, client_id: str = "raw") -> bytes:
    """Return the request with its size and header."""
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    body = codec(RequestHeader, request_header_version(key, version)).encode(header)
    body += codec(request_type(key), version).encode(request)
    return SIZE.pack(len(body)) + body


class RawClient:
    """One raw connection to a broker. Responses arrive in the order of their requests. Raises OSError when the
    connection is lost.
    """

    def __init__(self, port: int, timeout: float = TIMEOUT_SECONDS) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._awaited: deque[tuple[int, ApiKey, int]] = deque()
        self._sent = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    @property
    def unanswered(self) -> int:
        return len(self._awaited)

    def send(self, request: Any, key: ApiKey, version: int, client_id: str = "raw") -> None:
        self._sent += 1
        self._awaited.append((self._sent, key, version))
        self.socket.sendall(frame(request, key, version, self._sent, client_id))

    def receive(self) -> Any:
        """Receive the response to the oldest request that has none yet."""
        (size,) = SIZE.unpack(self._read(4))
        data = self._read(size)
        correlation_id, key, version = self._awaited.popleft()
        header, position = codec(ResponseHeader, response_header_version(key, version)).decode_from(data)
        assert header.correlation_id == correlation_id, "an answer out of order"
        return codec(response_type(key), version).decode(data, position)

    def call(self, request: Any, key: ApiKey, version: int) -> Any:
        self.send(request, key, version)
        return self.receive()

    def exchange(self, request: bytes) -> bytes:
        """Send an encoded request and read one response, without encoding or decoding, for tests that must be fast."""
        self.socket.sendall(request)
        (size,) = SIZE.unpack(self._read(4))
        return bytes(self._read(size))

    def is_readable(self) -> bool:
        """Return whether some bytes of a response have arrived."""
        answers = select.poll()  # select() cannot handle descriptors above 1023
        answers.register(self.socket, select.POLLIN)
        return bool(answers.poll(0))

    def _read(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data

    # --- the calls that tests make most

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic; configuration keys are written with underscores in place of dots."""
        topic = CreateTopicsRequest.CreatableTopic
        wanted = topic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[topic.CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()],
        )
        answer = self.call(CreateTopicsRequest(topics=[wanted]), ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION)
        assert answer.topics[0].error_code == 0, answer.topics[0]

    def alter_topic(self, name: str, **configs: str) -> None:
        """Set configuration keys, with underscores in place of dots; other keys are not changed."""
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        changes = [
            resource.AlterableConfig(name=key.replace("_", "."), config_operation=ConfigOperation.SET, value=value)
            for key, value in configs.items()
        ]
        asked = resource(resource_type=ResourceType.TOPIC, resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[asked], validate_only=False)
        (answer,) = self.call(request, ApiKey.INCREMENTAL_ALTER_CONFIGS, ALTER_CONFIGS_VERSION).responses
        assert answer.error_code == 0, answer

    def list_offset(self, topic: str, partition: int, timestamp: int = LATEST_TIMESTAMP) -> tuple[int, int]:
        """Return offset and timestamp of the first record at or after this timestamp, as ListOffsets returns them."""
        asked = ListOffsetsRequest.ListOffsetsTopic
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                asked(
                    name=topic, partitions=[asked.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)]
                )
            ],
        )
        (found,) = self.call(request, ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION).topics[0].partitions
        assert found.error_code == 0, found
        return found.offset, found.timestamp

    def fetch(self, topic: str, partition: int, offset: int, max_bytes: int = 1 << 16) -> list[RecordBatch]:
        """Return the batches from the batch that contains `offset` on; an empty list at the end of the log."""
        asked = FetchRequest.FetchTopic
        wanted = asked.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, topics=[asked(topic=topic, partitions=[wanted])]
        )
        (answer,) = self.call(request, ApiKey.FETCH, FETCH_VERSION).responses[0].partitions
        assert answer.error_code == 0, answer
        return list(batches(answer.records or b""))


def produce_request(topic: str, partition: int, batch: bytes | bytearray, acks: int = -1) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            data(name=topic, partition_data=[data.PartitionProduceData(index=partition, records=bytes(batch))])
        ],
    )
