"""The bytes of Fetch responses with one partition or none, built from the declaration of the response."""

from __future__ import annotations

from struct import Struct
from typing import Final

from oncelog_broker.server.kept.session_partition import TopicName
from oncelog_protocol.codec import codec
from oncelog_protocol.messages.fetch import FetchResponse
from oncelog_protocol.schema import Records
from oncelog_protocol.templates import around_records, changing, records_writer
from oncelog_protocol.wire_writers import Buffer

TopicResponse = FetchResponse.FetchableTopicResponse
PartitionResponse = TopicResponse.PartitionData

MAX_KEPT: Final = 64
"""The maximum number of response templates that a fast lane keeps. A fast lane needs one template for each partition in
each of its sessions.
"""
NO_RECORDS: Final = memoryview(b"")
NO_TOPIC: Final = TopicName("", b"")
NO_PARTITION: Final = -1


class _Template:
    """Template of a response: the bytes before the records, and the bytes behind the records."""

    __slots__ = ("fixed_bytes", "kept", "pack", "tail")

    def __init__(self, layout: str, kept: tuple[bytes, ...], tail: bytes) -> None:
        packed = Struct(">ii" + layout)
        self.pack, self.kept, self.tail = packed.pack, kept, tail
        self.fixed_bytes = packed.size - 4 + len(tail)
        """The value of the frame's size field (in bytes) for a response without records and without their length field.
        """


class FetchAnswers:
    """Builds the responses of one Fetch version."""

    __slots__ = ("_kept", "_response_header", "_version", "_write_records")

    def __init__(self, version: int, *, flexible: bool) -> None:
        """`flexible`: whether the response header has tagged fields."""
        self._version = version
        self._response_header = b"\0" if flexible else b""
        self._write_records = records_writer(FetchResponse, version)
        self._kept: dict[tuple[int, bool, TopicName, int], _Template] = {}
        """(session id, whether the response includes aborted transactions, topic, partition) -> the template of the
        response.
        """

    def without_partition(self, correlation_id: int, session_id: int) -> list[Buffer]:
        """Return the frame of a response without partitions."""
        template = self._template(session_id, NO_TOPIC, NO_PARTITION, read_committed=False)
        return [template.pack(template.fixed_bytes, correlation_id, *template.kept)]

    def of_partition(
        self,
        correlation_id: int,
        session_id: int,
        topic: TopicName,
        index: int,
        offsets: tuple[int, int, int],
        records: Records,
        *,
        read_committed: bool,
    ) -> list[Buffer]:
        """Return the frame of a response with one partition. `offsets`: high watermark, last stable offset and log
        start offset.
        """
        template = self._template(session_id, topic, index, read_committed=read_committed)
        parts: list[Buffer] = [b""]
        self._write_records(parts, records)
        first, second, third, last = template.kept
        high_watermark, last_stable_offset, log_start_offset = offsets
        parts[0] = template.pack(
            template.fixed_bytes + len(parts[1]) + len(parts[2]), correlation_id,
            first, high_watermark, second, last_stable_offset, third, log_start_offset, last,
        )  # fmt: skip
        parts.append(template.tail)
        return parts

    def _template(self, session_id: int, topic: TopicName, index: int, *, read_committed: bool) -> _Template:
        key = (session_id, read_committed, topic, index)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) == MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            found = self._kept[key] = self._make(session_id, topic, index, read_committed=read_committed)
        return found

    def _make(self, session_id: int, topic: TopicName, index: int, *, read_committed: bool) -> _Template:
        response, of_version = FetchResponse(session_id=session_id, responses=[]), codec(FetchResponse, self._version)
        if index == NO_PARTITION:
            whole = self._response_header + of_version.encode(response)
            return _Template(f"{len(whole)}s", (whole,), b"")
        partition = PartitionResponse(
            partition_index=index,
            error_code=0,
            high_watermark=0,
            aborted_transactions=[] if read_committed else None,
            records=NO_RECORDS,
        )
        response.responses.append(TopicResponse(topic=topic.name, topic_id=topic.topic_id, partitions=[partition]))
        pattern = changing(
            lambda: around_records(of_version, response, NO_RECORDS).head,
            (partition, "high_watermark"),
            (partition, "last_stable_offset"),
            (partition, "log_start_offset"),
        ).behind(self._response_header)
        return _Template(pattern.format, pattern.kept, around_records(of_version, response, NO_RECORDS).tail)
