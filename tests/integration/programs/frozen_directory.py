"""Creates a data directory with a little of everything, and a broker's description of it. One version writes the
directory, and other versions open it.

    PYTHONPATH=.:tests/integration python -m programs.frozen_directory NAME [--command /path/to/an/older/oncelog]

writes `tests/data/NAME-clean.tar.xz` (the broker was stopped) and `NAME-killed.tar.xz` (kill -9), a few KB each. A
release whose directories later releases must be able to read adds such a pair of archives; these archives are never
changed afterwards.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

import integration_folders  # noqa: F401  where the modules below are
from broker_process import BrokerProcess
from foreign_clients import eventually
from raw_client import FETCH_VERSION, RawClient, produce_request
from raw_transactions import READ_COMMITTED, RawTransactions, committed_offset, last_stable_offset, new_producer_id
from tests.support.storage import NOW, make_batch

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.describe_producers import DescribeProducersRequest
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.list_offsets import EARLIEST_TIMESTAMP
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.compression import Compression

DIRECTORY: Final = Path(__file__).parents[2] / "data"
EXPECTED: Final = "expected.json"
"""The file with the description, beside the data directory in each archive."""
NEVER: Final = str(2**31 - 1)
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "100",
    # Retention is off, because the directory is opened years later, and must still have all its records.
    "log.retention.ms": "-1",
    "offsets.retention.minutes": NEVER,
    "producer.id.expiration.ms": NEVER,
    "transactional.id.expiration.ms": NEVER,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": NEVER,
}
PLAIN, IN_TRANSACTIONS, COMPACTED = "plain", "in-transactions", "compacted"
TOPICS: Final = (PLAIN, IN_TRANSACTIONS, COMPACTED)
COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"
"""Transactional ids; each name is the outcome of the id's last transaction."""
GROUP, GROUP_OF_TRANSACTIONS = "workers", "transactional-workers"
KEYS: Final = 2
"""The number of keys in the compacted topic."""
IDEMPOTENT_BATCHES: Final = 7
"""The number of batches of an idempotent producer, of which the broker remembers the last five."""


def fill(client: RawClient) -> dict[str, Any]:
    """Write topics, offsets and transactions of every kind, and return the facts that a broker cannot report."""
    client.create_topic(PLAIN, retention_ms="-1", max_message_bytes="100000")
    client.create_topic(IN_TRANSACTIONS)
    client.create_topic(COMPACTED, cleanup_policy="compact", segment_ms="1", min_cleanable_dirty_ratio="0.01")
    for compression in (Compression.NONE, Compression.GZIP, Compression.LZ4, Compression.SNAPPY, Compression.ZSTD):
        produce(client, PLAIN, make_batch(b"a" * 50, b"b" * 50, compression=compression))
    idempotent, epoch = new_producer_id(client)
    for sequence in range(IDEMPOTENT_BATCHES):
        produce(client, PLAIN, idempotent_batch(idempotent, epoch, sequence))
    for transactional_id, is_v2 in ((COMMITTED, True), (ABORTED, False), (OPEN, True)):
        transactions = RawTransactions(client, transactional_id, is_v2=is_v2)
        transactions.take_over()
        transactions.write(IN_TRANSACTIONS)
        if transactional_id != OPEN:
            assert transactions.end(transactional_id == COMMITTED) == 0
    in_group = RawTransactions(client, COMMITTED, is_v2=False)
    in_group.take_over()
    assert in_group.add_offsets(GROUP_OF_TRANSACTIONS) == 0
    assert in_group.commit_offset(GROUP_OF_TRANSACTIONS, PLAIN, 5) == 0
    assert in_group.end() == 0
    commit(client, GROUP, PLAIN, 3)
    for number in range(6):
        batch = make_batch(b"%d" % number, key=b"key-%d" % (number % KEYS), timestamp=NOW + 1000 * number)
        produce(client, COMPACTED, batch)
    # The last batch is in the active segment, which is not compacted.
    eventually(lambda: len(batches_of(client, COMPACTED)) == KEYS + 1, "it is compacted")
    return {"idempotent": [idempotent, epoch], "highest": new_producer_id(client).producer_id}


def idempotent_batch(producer_id: int, epoch: int, sequence: int) -> bytearray:
    return make_batch(b"%d" % sequence, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def produce(client: RawClient, topic: str, batch: bytes | bytearray) -> int:
    """Produce a batch, and return its base offset."""
    answer = client.call(produce_request(topic, 0, batch), ApiKey.PRODUCE, 9)
    (placed,) = answer.responses[0].partition_responses
    assert placed.error_code == 0, placed
    return int(placed.base_offset)


def commit(client: RawClient, group: str, topic: str, offset: int) -> None:
    asked = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = asked.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="a note"
    )
    request = OffsetCommitRequest(group_id=group, member_id="", topics=[asked(name=topic, partitions=[partition])])

    def is_committed() -> bool:
        answer = client.call(request, ApiKey.OFFSET_COMMIT, 8)
        return bool(answer.topics[0].partitions[0].error_code == 0)

    eventually(is_committed, "the group has a coordinator")


def inspect(client: RawClient) -> dict[str, Any]:
    """Return a broker's description of the directory as JSON values, so that it can be stored."""
    found: dict[str, Any] = {topic: _topic(client, topic) for topic in TOPICS}
    for group in (GROUP, GROUP_OF_TRANSACTIONS):
        eventually(lambda: committed_offset(client, group, PLAIN)[0] == 0, "the group is loaded")  # noqa: B023
        found[group] = committed_offset(client, group, PLAIN)[1]
    return found


def _topic(client: RawClient, topic: str) -> dict[str, Any]:
    asked = MetadataRequest.MetadataRequestTopic(name=topic)
    request = MetadataRequest(topics=[asked], allow_auto_topic_creation=False)
    (described,) = client.call(request, ApiKey.METADATA, 12).topics
    return {
        "topic id": described.topic_id.hex(),
        "start": client.list_offset(topic, 0, EARLIEST_TIMESTAMP)[0],
        "end": client.list_offset(topic, 0)[0],
        "stable": last_stable_offset(client, topic),
        "batches": [
            [batch.base_offset, hashlib.sha256(batch.view).hexdigest()[:16]] for batch in batches_of(client, topic)
        ],
        "aborted": _aborted(client, topic),
        "producers": _producers(client, topic),
    }


def batches_of(client: RawClient, topic: str) -> list[RecordBatch]:
    found: list[RecordBatch] = []
    while fetched := client.fetch(topic, 0, found[-1].next_offset if found else 0):
        found += fetched
    return found


def _aborted(client: RawClient, topic: str) -> list[list[int]]:
    """The response to a Fetch lists only the aborted transactions of one segment, so the test requests each batch
    separately.
    """
    asked = FetchRequest.FetchTopic
    found = set()
    for batch in batches_of(client, topic):
        wanted = asked.FetchPartition(partition=0, fetch_offset=batch.base_offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, isolation_level=READ_COMMITTED, topics=[asked(topic=topic, partitions=[wanted])]
        )
        (answer,) = client.call(request, ApiKey.FETCH, FETCH_VERSION).responses[0].partitions
        found |= {(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()}
    return [list(each) for each in sorted(found)]


def _producers(client: RawClient, topic: str) -> list[list[int]]:
    asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])
    answer = client.call(DescribeProducersRequest(topics=[asked]), ApiKey.DESCRIBE_PRODUCERS, 0)
    (partition,) = answer.topics[0].partitions
    assert partition.error_code == 0, partition
    return sorted(
        [each.producer_id, each.producer_epoch, each.last_sequence, each.coordinator_epoch,
         each.current_txn_start_offset]
        for each in partition.active_producers
    )  # fmt: skip


def make(path: Path, *, is_killed: bool, command: str | None = None) -> None:
    """Create the archive `path` with the data directory and its description."""
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "data"
        with BrokerProcess(data, SETTINGS, command=command) as broker:
            with RawClient(broker.port) as client:
                expected = fill(client)
                expected |= {"found": inspect(client)}
            broker.kill() if is_killed else broker.stop()
        with tarfile.open(path, "w:xz", preset=9) as archive:
            archive.add(data, "data", filter=_anonymous)
            content = json.dumps(expected, indent=1).encode()
            entry = tarfile.TarInfo(EXPECTED)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="of the version")
    parser.add_argument("--command", help="another oncelog than ours")
    arguments = parser.parse_args()
    DIRECTORY.mkdir(exist_ok=True)
    for how, is_killed in (("clean", False), ("killed", True)):
        make(DIRECTORY / f"{arguments.name}-{how}.tar.xz", is_killed=is_killed, command=arguments.command)


if __name__ == "__main__":
    main()
