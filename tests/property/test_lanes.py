"""The fast code paths for Produce (lanes) behave like the general handler in any state of the broker. Two brokers, one
of them without lanes, get the same requests.

Both brokers must send the same bytes, write the same files, and count the same metrics. For each rule by which a lane
leaves a request to the general handler, `World` has a step that triggers the rule.
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from struct import pack, pack_into
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.producers import COMMIT, sequenced
from tests.support.served import TOPIC, Client, Coordinator, Served
from tests.support.storage import NOW, FaultyDisk, make_batch, open_log

from oncelog_broker.config.broker_keys import BROKER_KEYS
from oncelog_broker.log.config import LONG_MAX
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.observability.request_times import RequestTimes
from oncelog_broker.replication.follower_progress import FollowerProgress
from oncelog_broker.security.authorizer.authorizer import StandardAuthorizer
from oncelog_broker.security.principal import ANONYMOUS
from oncelog_broker.security.quotas.limits import Limit
from oncelog_broker.server.dispatch.dispatcher import Dispatcher
from oncelog_broker.server.dispatch.throttling import Throttling
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.quotas import QuotaEntity, QuotaKey
from oncelog_protocol.records.batch import CRC_AT, MAGIC_AT, MAX_TIMESTAMP_AT, batch_crc
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.control import EndTransactionMarker

PARTITIONS = 2
TRANSACTIONAL_ID = "txn"
FOLLOWER = 2
CLIENT = QuotaEntity(None, "test")
CONFIG: Any = {key: key.default for key in BROKER_KEYS.values()}


class NoLanes(dict[int, Any]):
    """Replaces a connection's lanes and stores no lane, so that the general handler processes every request."""

    def __setitem__(self, key: int, lane: Any) -> None:
        pass


class World:
    """Two copies of a broker, one with lanes and one without; the only client of each copy is a producer. Each public
    method is a
    step that both copies perform.
    """

    def __init__(self, directory: str, *, has_lanes: bool) -> None:
        self.directory, self.has_lanes = Path(directory), has_lanes
        self.served = served = Served(self.directory, partitions=PARTITIONS)
        self.disks = [FaultyDisk() for _ in range(PARTITIONS)]
        for index, partition in enumerate(served.partitions):
            partition.log.close()
            log = open_log(
                self.directory / f"{TOPIC}-{index}", served.partitions[index].log.config, disk=self.disks[index]
            )
            partition.__init__(  # type: ignore[misc]
                TOPIC, bytes(16), index, log, broker_id=1, may_lead=lambda: served.may_lead,
                request_sync=lambda partition: None,
            )  # fmt: skip
            partition.lead(0, (1,))
        self.coordinator = served.services.transactions = Coordinator()
        served.services.image = ClusterImage("", {}).with_quotas({})
        served.clock.advance_ms(1000)
        self.times = RequestTimes()
        served.dispatcher = Dispatcher(served.services, self.times)
        self.throttling = Throttling(CONFIG, served.clock)
        self.authorizer = StandardAuthorizer()
        self.sequences = [0, 0]
        self.epochs = [0, 0]
        self.leader_epoch = 0
        self.lane_answers = 0
        self.connect()

    def connect(self) -> None:
        self.client = Client(self.served)
        if not self.has_lanes:
            self.client.connection.lanes = NoLanes()
        for version in (9, 9, 12, 12):  # from here on the lanes recognise the next request
            for acks in (1, -1):
                self.plain(0, version, acks, "one")
                self.plain(0, version, acks, "one")
                self.transactional(0, version, acks, 0)

    # --- steps

    def plain(self, index: int, version: int, acks: int, kind: str) -> None:
        self._send(index, version, acks, None, _of_kind(kind))

    def idempotent(self, index: int, version: int, acks: int, step: int) -> None:
        """Send a batch of the idempotent producer. `step` 0 sends the next batch; a negative `step` repeats an earlier
        batch, a positive one leaves a gap before the batch.
        """
        sequence = max(0, self.sequences[0] + step)
        self._send(index, version, acks, None, bytes(sequenced(5, sequence, 2, epoch=self.epochs[0])))
        if step == 0:
            self.sequences[0] += 2

    def transactional(self, index: int, version: int, acks: int, step: int) -> None:
        batch = sequenced(7, max(0, self.sequences[1] + step), epoch=self.epochs[1], transactional=True)
        self._send(index, version, acks, TRANSACTIONAL_ID, bytes(batch))
        if step == 0:
            self.sequences[1] += 1

    def mismatched(self, index: int, version: int) -> None:
        """Send a transactional batch without a transactional id, then another batch with one."""
        self._send(index, version, 1, None, bytes(sequenced(7, self.sequences[1], transactional=True)))
        self._send(index, version, 1, TRANSACTIONAL_ID, _of_kind("one"))

    def encoded_otherwise(self, index: int, version: int, tail: int) -> None:
        """Send additional bytes after the message, or fewer bytes than the message needs."""
        frame = self.client._frame(_request(index, 1, None, _of_kind("one")), ApiKey.PRODUCE, version)
        body = frame[4:] + bytes(tail) if tail > 0 else frame[4 : len(frame) + tail]
        self.client._receive(pack(">i", len(body)) + body)

    def end_transaction(self, index: int) -> None:
        with suppress(KafkaError):
            self.served.partitions[index].append_marker(
                EndTransactionMarker(COMMIT, 0), producer_id=7, producer_epoch=self.epochs[1]
            )

    def next_epoch(self, producer: int) -> None:
        self.epochs[producer] += 1
        self.sequences[producer] = 0

    def lead_anew(self) -> None:
        self.leader_epoch += 1
        for partition in self.served.partitions:
            if not partition.log.is_offline:
                partition.lead(self.leader_epoch, (1,))

    def resign(self, index: int) -> None:
        self.served.partitions[index].follow(FOLLOWER, self.leader_epoch)

    def gain_follower(self, index: int, is_in_sync: bool) -> None:
        """Add a follower that never fetches, so that acks=all waits from then on."""
        self.leader_epoch += 1
        isr = (1, FOLLOWER) if is_in_sync else (1,)
        self.served.partitions[index].lead(self.leader_epoch, isr, (1, FOLLOWER))
        assert isinstance(self.served.partitions[index].followers[FOLLOWER], FollowerProgress)

    def gate(self, is_open: bool) -> None:
        self.served.may_lead = is_open

    def configure(self, index: int, change: dict[str, Any]) -> None:
        partition = self.served.partitions[index]
        partition.update_config(replace(partition.log.config, **change))

    def sync(self, index: int, fault: int | None) -> None:
        """Sync the records that are appended so far, as group commit does; the disk may fail."""
        partition, disk = self.served.partitions[index], self.disks[index]
        if partition.log.is_offline or not partition.begin_sync():
            return
        pending = partition.log.flusher.prepare_sync()
        disk.sync_fault = fault
        try:
            if pending is not None:
                pending.sync()
        except OSError as error:
            partition.log.flusher.flush_failed(error)
            partition.on_sync_failed()
        else:
            if pending is not None:
                partition.log.flusher.finish_sync(pending)
            partition.on_synced()
        finally:
            disk.sync_fault = None

    def delete(self, index: int) -> None:
        """Delete all records so far, which moves the log start."""
        partition = self.served.partitions[index]
        with suppress(KafkaError):
            partition.log.trimmer.delete_records_before(partition.high_watermark)

    def break_disk(self, index: int, fault: int | None) -> None:
        self.disks[index].append_fault = fault

    def authorize(self, mode: str) -> None:
        """Change what the authorizer allows: `deny` everything, `allow` everything, or `forget` cached decisions and
        then deny what was allowed.
        """
        if mode == "forget":
            self.authorizer._super_users = frozenset()
            self.authorizer.use({})
        else:
            self.authorizer = StandardAuthorizer([ANONYMOUS] if mode == "allow" else [])
        self.served.services.authorizer = None if mode == "off" else self.authorizer

    def quota(self, rate: float | None, key: QuotaKey = QuotaKey.PRODUCER_BYTE_RATE, client: str = "test") -> None:
        quotas = {} if rate is None else {QuotaEntity(None, client): {key: rate}}
        image = ClusterImage("c").with_quotas(quotas)  # type: ignore[arg-type]
        self.served.dispatcher.throttling = self.throttling.on_image(image)

    def refuse_first(self, index: int) -> None:
        """Let the broker refuse the producer's next batch for a transient reason, so that `refused_batches` remembers
        the batch.
        """
        self.served.may_lead = False
        self.idempotent(index, 9, 1, 0)
        self.served.may_lead = True

    def doubt(self, code: ErrorCode) -> None:
        self.coordinator.code = code

    def advance(self, seconds: float) -> None:
        self.served.clock.advance_ms(int(seconds * 1000))

    def again(self) -> None:
        self.connect()

    def _send(self, index: int, version: int, acks: int, transactional_id: str | None, records: bytes) -> None:
        self.client.send(_request(index, acks, transactional_id, records), version=version)

    # --- comparison of the two brokers

    def outcome(self) -> dict[str, Any]:
        served = self.served
        return {
            "answers": self.client.wire.bytes,
            "aborted": self.client.wire.aborted,
            "offsets": [(p.high_watermark, p.last_stable_offset, p.log.log_end_offset) for p in served.partitions],
            "producers": [
                (sorted(p.log.producer_state.image()), p.log.producer_state.counters) for p in served.partitions
            ],
            "offline": [p.log.is_offline for p in served.partitions],
            "traffic": [{name: getattr(p.traffic, name) for name in p.traffic.__slots__} for p in served.partitions],
            "requests": sorted(served.dispatcher.requests()),
            "timed": {api: (len(times.total), times.waited) for api, times in self.times.apis.items()},
            "refused": list(served.services.refused_batches.lowest.items()),
            "usage": self.throttling.wait(QuotaKey.PRODUCER_BYTE_RATE, _limit()),
            "is throttled": self.client.connection._unthrottle is not None,
        }

    def files(self) -> dict[str, bytes]:
        self.served.leave()
        return {
            str(path.relative_to(self.directory)): path.read_bytes()
            for path in sorted(self.directory.rglob("*"))
            if path.is_file()
        }


def _limit() -> Any:
    return Limit(1.0, CLIENT)


def _request(index: int, acks: int, transactional_id: str | None, records: bytes) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData.PartitionProduceData(index=index, records=records)
    topics = [ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])]
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics)


def _of_kind(kind: str) -> bytes:
    batch = make_batch(*([b"v" * 40] * (3 if kind == "three" else 1)))
    if kind == "packed":
        batch = make_batch(b"v" * 300, compression=Compression.ZSTD)
    elif kind == "mistimed":  # the batch header declares fewer records than the batch has
        pack_into(">q", batch, MAX_TIMESTAMP_AT, NOW - 1)
        pack_into(">I", batch, CRC_AT, batch_crc(batch))
    elif kind == "late":
        batch = make_batch(timestamp=NOW + 10**10)
    elif kind == "offset":
        pack_into(">q", batch, 0, 5)
    elif kind == "corrupt":
        batch[-1] ^= 1
    elif kind == "old":
        batch[MAGIC_AT] = 1
    elif kind == "short":
        batch = batch[:50]
    elif kind == "large":
        batch = make_batch(b"v" * 5000)
    return bytes(batch)


KINDS = ("one", "one", "three", "packed", "mistimed", "late", "offset", "corrupt", "old", "short", "large")
indexes = st.sampled_from([0, 0, 0, 0, 1, 5])
hosted = st.sampled_from([0, 0, 1])
versions = st.sampled_from([9, 9, 9, 12, 12, 3])
acks = st.sampled_from([1, -1, 1, -1, 1, -1, 0, 3])
requests = st.one_of(
    st.tuples(st.just("plain"), indexes, versions, acks, st.sampled_from(KINDS)),
    st.tuples(st.just("idempotent"), indexes, versions, acks, st.sampled_from([0, 0, 0, 0, -2, -8, -14, 2])),
    st.tuples(st.just("transactional"), hosted, versions, acks, st.sampled_from([0, 0, 0, 0, -1, 1])),
    st.tuples(st.just("sync"), hosted, st.just(None)),
    st.tuples(st.just("mismatched"), hosted, versions),
    st.tuples(st.just("encoded_otherwise"), hosted, versions, st.sampled_from([1, 3, -1, -3, -70])),
)
SETTINGS = (
    {"message_timestamp_type": "LogAppendTime"},
    {"record_validation": "full"},
    {"max_message_bytes": 100},
    {"min_insync_replicas": 2},
    {"segment_bytes": 400},
    {"flush_messages": 1},
    {"flush_messages": 1},
    {"flush_messages": LONG_MAX},
)
SYNCED = {"flush_messages": 1}
changes = st.one_of(
    st.tuples(st.just("end_transaction"), hosted),
    st.tuples(st.just("next_epoch"), st.integers(0, 1)),
    st.tuples(st.just("lead_anew")),
    st.tuples(st.just("resign"), hosted),
    st.tuples(st.just("gain_follower"), hosted, st.booleans()),
    st.tuples(st.just("gate"), st.booleans()),
    st.tuples(st.just("configure"), hosted, st.sampled_from(SETTINGS)),
    st.tuples(st.just("sync"), hosted, st.sampled_from([None, None, errno.EIO])),
    st.tuples(st.just("delete"), hosted),
    st.tuples(st.just("break_disk"), hosted, st.sampled_from([errno.ENOSPC, errno.EIO, None])),
    st.tuples(st.just("authorize"), st.sampled_from(["deny", "allow", "forget", "off"])),
    st.tuples(st.just("quota"), st.sampled_from([None, 10.0, 5000.0, 1e9])),
    st.tuples(st.just("quota"), st.just(10.0), st.sampled_from(list(QuotaKey)), st.sampled_from(["test", "other"])),
    st.tuples(st.just("refuse_first"), hosted),
    st.tuples(st.just("doubt"), st.sampled_from([ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE])),
    st.tuples(st.just("advance"), st.sampled_from([0.5, 11.0])),
    st.tuples(st.just("again")),
)
scripts = st.lists(st.tuples(changes, st.lists(requests, min_size=1, max_size=5)), min_size=1, max_size=6)


@settings(examples(60, of=250), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(scripts)
@example([(("configure", 0, SETTINGS[1]), [("plain", 0, 9, 1, "mistimed")])])
@example(
    [(("authorize", "allow"), [("plain", 0, 9, 1, "one")] * 2), (("authorize", "forget"), [("plain", 0, 9, 1, "one")])]
)
@example([(("gain_follower", 0, True), [("plain", 0, 9, -1, "one"), ("plain", 0, 9, 1, "one")])])
@example([(("advance", 0.5), [("plain", 0, 9, 1, "short"), *[("plain", 0, 9, 1, "one")] * 8])])
@example([(("quota", 10.0), [("plain", 0, 9, 1, "one")] * 4), (("quota", None), [("plain", 0, 9, 1, "one")])])
@example([(("quota", 3000.0), [("plain", 0, 9, 1, "one"), ("idempotent", 0, 9, 1, 2)] * 8)])
@example(
    [(("configure", 0, SYNCED), [("plain", 0, 9, 1, "one")] * 3), (("sync", 0, None), [("plain", 0, 9, 1, "one")])]
)
@example([(("configure", 0, SYNCED), [("plain", 0, 9, 1, "one"), ("plain", 0, 9, -1, "one")]), (("sync", 0, 5), [])])
@example([(("break_disk", 0, errno.ENOSPC), [("idempotent", 0, 9, 1, 0)] * 3)])
@example([(("gain_follower", 0, True), [*[("idempotent", 0, 9, 1, 0)] * 8, ("idempotent", 0, 9, -1, -14)])])
@example([(("end_transaction", 0), [("transactional", 0, 12, -1, 0)])])
def test_a_produce_lane_answers_like_the_usual_way(script: list[tuple[Any, list[Any]]]) -> None:
    asyncio.run(_compare(step for change, requests in script for step in (change, *requests)))


async def _compare(steps: Iterable[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory(prefix="oncelog-lanes-") as directory:
        worlds = [World(os.path.join(directory, name), has_lanes=name == "fast") for name in ("fast", "usual")]
        for step, *arguments in steps:
            for world in worlds:
                getattr(world, step)(*arguments)
            for _ in range(5):
                await asyncio.sleep(0)
            fast, usual = (world.outcome() for world in worlds)
            for what, value in usual.items():
                assert fast[what] == value, (step, what)
        fast_files, usual_files = (world.files() for world in worlds)
        assert fast_files == usual_files
