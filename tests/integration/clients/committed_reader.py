"""Computes the records that a read_committed consumer sees, with raw fetches and a filter that is independent of
oncelog's client.

`Watch` reads continuously during a scenario, so that it also finds records that are visible only for a moment.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from foreign_clients import eventually
from raw_client import FETCH_VERSION, RawClient
from raw_transactions import READ_COMMITTED, last_stable_offset

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.records.batch import RecordBatch, batches
from oncelog_protocol.records.control import read_marker
from oncelog_protocol.records.record import read_records

WAIT_MS = 50
PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


class CommittedReader:
    """Reads one partition from offset 0 on. Invariant: `values` are the values of all visible records below
    `offset`.
    """

    def __init__(self, topic: str, partition: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = 0
        self.values: list[bytes | None] = []

    def read(self, client: RawClient, *, max_wait_ms: int = 0, max_bytes: int = 1 << 16) -> bool:
        """Send one Fetch, and return whether its response has record batches."""
        fetched = fetch_committed(client, self.topic, self.partition, self.offset, max_wait_ms, max_bytes)
        start = self.offset
        for batch in visible(fetched):
            self.values += [record.value for record in read_records(batch) if record.offset >= start]
        for batch in batches(fetched.records or b""):
            self.offset = batch.next_offset
        return self.offset > start


def fetch_committed(
    client: RawClient, topic: str, partition: int, offset: int, max_wait_ms: int = 0, max_bytes: int = 1 << 16
) -> PartitionData:
    asked = FetchRequest.FetchTopic
    wanted = asked.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1 if max_wait_ms else 0,
        max_bytes=max_bytes,
        isolation_level=READ_COMMITTED,
        topics=[asked(topic=topic, partitions=[wanted])],
    )
    (answer,) = client.call(request, ApiKey.FETCH, FETCH_VERSION).responses[0].partitions
    assert answer.error_code == 0, answer
    assert answer.aborted_transactions is not None
    return answer


def visible(fetched: PartitionData) -> Iterator[RecordBatch]:
    """Yield the committed and the non-transactional batches of a Fetch response."""
    coming = sorted((found.first_offset, found.producer_id) for found in fetched.aborted_transactions or [])
    aborting: set[int] = set()
    for batch in batches(fetched.records or b""):
        while coming and coming[0][0] <= batch.last_offset:
            aborting.add(coming.pop(0)[1])
        if batch.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.is_commit:
                aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            yield batch


def committed_values(client: RawClient, topic: str, partition: int = 0) -> list[bytes | None]:
    """Return all values that are visible now."""
    reader = CommittedReader(topic, partition)
    while reader.read(client):
        pass
    return reader.values


class Watch:
    """Reads partitions of a topic continuously, also over broker restarts. `values` first waits until the reader has
    reached the last stable offset.
    """

    def __init__(self, port: int, topic: str, *partitions: int) -> None:
        self._port = port
        self._readers = [CommittedReader(topic, partition) for partition in partitions or (0,)]
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    with RawClient(self._port) as client:
                        while not self._stopping.is_set():
                            for reader in self._readers:
                                reader.read(client, max_wait_ms=WAIT_MS)
                except OSError:
                    self._stopping.wait(0.02)  # the broker is restarting: try again
        except BaseException as error:
            self._failure = error
            raise

    def values(self, client: RawClient, partition: int = 0) -> list[bytes | None]:
        (reader,) = (reader for reader in self._readers if reader.partition == partition)
        end = last_stable_offset(client, reader.topic, partition)

        def has_read() -> bool:
            assert self._failure is None, self._failure
            return reader.offset >= end

        eventually(has_read, f"all below {end} is read")
        return list(reader.values)
