"""Scenes in which transactions, groups and share partitions get other coordinators, while the former ones still answer
or while their logs are compacted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath
from typing import Any, Final

from oncelog.clock import now_ms
from oncelog.errors import ConnectionFailed, KafkaError
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_simulation.faults.lost_disks import exchange_disk, has_others_in_sync
from oncelog_simulation.machine import BrokerMachine, Killed
from oncelog_simulation.scenes.scene import FAST, SMALL_SEGMENTS, SYNCED, Scene, scene
from oncelog_simulation.scenes.stage import TOPIC, TRANSACTIONS, Missed, Stage
from oncelog_simulation.workloads.late_peers import PeerWire
from oncelog_simulation.workloads.wire import BUSY, INIT, V1_ADD, V1_END, V1_PRODUCE, one_record
from oncelog_testing.history.events import End, Place, Send, Transaction

SCENES: Final[dict[str, Scene]] = {}
"""The scenes of this module, by name."""
TIMEOUT_MS: Final = 60_000
TRIES: Final = 40
RETRY_SECONDS: Final = 0.05
LATE_ANSWER_SECONDS: Final = 3.0
"""Virtual seconds after which a request to the former coordinator counts as not answered."""
VALUE_BYTES: Final = 50
"""Most bytes between the transactional id and the end of the first topic name in a record of an open transaction."""
INTERNAL: Final = ("__consumer_offsets", TRANSACTIONS, "__share_group_state")
COMPACTED: Final = {
    **FAST,
    "offsets.topic.segment.bytes": ("600", "2000"),
    "transaction.state.log.segment.bytes": ("600", "2000"),
    "share.coordinator.state.topic.segment.bytes": ("600", "2000"),
    "share.coordinator.snapshot.update.records.per.snapshot": ("2", "5"),
    "log.cleaner.backoff.ms": ("100",),
    "log.cleaner.min.cleanable.ratio": ("0.01", "0.5"),
}
"""Settings with which the logs of coordinators are compacted within seconds."""


class V1Producer:
    """A producer of transactions V1 that sends each request to the broker that the scene names."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self._name = name
        self._writes = 0
        """The number of accepted records, which is the sequence of the next one."""
        self._send: Send | None = None
        """The record that was sent and is not accepted yet."""
        self._producer = ProducerIdAndEpoch(-1, -1)

    async def init(self, coordinator: BrokerMachine) -> None:
        """Get a producer id and epoch. Raises Missed."""
        request = InitProducerIdRequest(
            transactional_id=self._name, transaction_timeout_ms=TIMEOUT_MS, producer_id=-1, producer_epoch=-1
        )
        answer = await self._must(coordinator, request, INIT, lambda answer: answer.error_code)
        self._producer = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    async def add(self, coordinator: BrokerMachine, place: Place) -> None:
        """Add a partition to the transaction. Raises Missed."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self._producer.producer_id,
            v3_and_below_producer_epoch=self._producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=place.topic, partitions=[place.index])],
        )

        def code_of(answer: Any) -> int:
            return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

        await self._must(coordinator, request, V1_ADD, code_of)

    async def write(self, leader: BrokerMachine, place: Place, transaction: Transaction) -> ErrorCode:
        """Send one record once; returns the error, REQUEST_TIMED_OUT if no response arrives. After an error, the next
        call sends the same record again.
        """
        value = f"{self._name}/{self._writes}".encode()
        if self._send is None:
            self._send = self._stage.notes.history.send(self._name, place, value, transaction)
        batch = one_record(value, self._producer, self._writes, now_ms(), is_transactional=True)
        data = ProduceRequest.TopicProduceData
        partition = data.PartitionProduceData(index=place.index, records=batch)
        request = ProduceRequest(
            transactional_id=self._name,
            acks=-1,
            timeout_ms=2_000,
            topic_data=[data(name=place.topic, partition_data=[partition])],
        )
        answer = await self._once(leader, request, V1_PRODUCE)
        if answer is None:
            return ErrorCode.REQUEST_TIMED_OUT
        told = answer.responses[0].partition_responses[0]
        if not told.error_code:
            self._stage.notes.history.acknowledged(self._send, told.base_offset)
            self._writes, self._send = self._writes + 1, None
        return ErrorCode.of(told.error_code)

    async def end(self, coordinator: BrokerMachine, *, commits: bool) -> ErrorCode:
        """Send EndTxn once; returns the error, REQUEST_TIMED_OUT if no response arrives."""
        answer = await self._once(coordinator, self._end(commits=commits), V1_END)
        return ErrorCode.REQUEST_TIMED_OUT if answer is None else ErrorCode.of(answer.error_code)

    async def end_for_sure(self, coordinator: BrokerMachine, *, commits: bool) -> None:
        """Send EndTxn until it is accepted. Raises Missed."""
        await self._must(coordinator, self._end(commits=commits), V1_END, lambda answer: answer.error_code)

    def _end(self, *, commits: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self._name,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            committed=commits,
        )

    async def _must(self, machine: BrokerMachine, request: Any, version: int, code_of: Callable[[Any], int]) -> Any:
        code = ErrorCode.REQUEST_TIMED_OUT
        for _ in range(TRIES):
            answer = await self._once(machine, request, version)
            if answer is not None:
                code = ErrorCode.of(code_of(answer))
                if code is ErrorCode.NONE:
                    return answer
                if code not in BUSY:
                    break
            await asyncio.sleep(RETRY_SECONDS)
        raise Missed(f"{type(request).__name__} gets {code.name}")

    async def _once(self, machine: BrokerMachine, request: Any, version: int) -> Any:
        async def call() -> Any:
            async with PeerWire(self._stage.world.bootstrap_servers) as wire:
                return await wire.to_broker(machine.number, request, version)

        return await _or_none(self._stage.world.client(self._name.rpartition("-")[0]).run(call))


async def _or_none(work: Awaitable[Any]) -> Any:
    """Return the result of a request; None if no response arrives in time."""
    try:
        async with asyncio.timeout(LATE_ANSWER_SECONDS):
            return await work
    except (Killed, KafkaError, ConnectionFailed, TimeoutError):
        return None


@scene(
    SCENES,
    "former coordinator",
    "a broker that does not know yet that another one coordinates a transaction verifies it, and answers its end",
    settings={**FAST, "zookeeper.session.timeout.ms": ("6000",), "replica.lag.time.max.ms": ("400",)},
    topic=SMALL_SEGMENTS,
    actors=("scene-writer-1", "scene-payer-1"),
    seconds=14.0,
)
async def former_coordinator(stage: Stage) -> bool:
    """The server of the store to which the former coordinator is connected is seconds behind. The former coordinator
    leads the partition to which the first transaction writes. It does not follow its successor yet, so the successor
    waits until it has left the ISR (replica.lag.time.max.ms). A second transaction writes to a partition of the
    successor, because the former coordinator would not verify its records. Other transactions do not reach the former
    coordinator: it confirms nothing as long as it has records that no other broker has.
    """
    random, place = stage.random, stage.place()
    elsewhere = random.choice([each for each in stage.places() if each != place])
    controller = stage.controller()
    former, successor = _on_different_servers(stage, controller)
    await stage.lead(former, place, *stage.places(TRANSACTIONS))
    producer = V1Producer(stage, f"twice-told-{random.randrange(10**9)}")
    await producer.init(former)
    history = stage.notes.history
    is_verified = random.random() < 0.5
    first = history.transaction("twice-told")
    await producer.add(former, place)
    if not is_verified:
        await _must_be_written(producer, former, place, first)
        await producer.end_for_sure(former, commits=True)
        history.ended(first, End.COMMITTED)
    payers = [client for client in stage.world.clients if client.startswith("scene-payer")]
    stage.cut(*((payer, former.name) for payer in payers))
    await stage.pause(0.05, 0.2)
    server = stage.store_server(former)
    server.lag = random.uniform(4.0, 5.0)
    await stage.lead(successor, elsewhere, *stage.places(TRANSACTIONS), seconds=4.0)
    second = first if is_verified else history.transaction("twice-told")
    if not is_verified:
        await producer.add(successor, elsewhere)
        await _must_be_written(producer, successor, elsewhere, second)
    await producer.end_for_sure(successor, commits=False)
    history.ended(second, End.ABORTED)
    if is_verified:
        await stage.pause(0.05, 0.3)
        code = await producer.write(former, place, second)
        # The leader may accept the record as long as the marker is not written, and the abort then covers it. If it
        # accepted the record behind the marker, the transaction would stay open, which the judges notice.
        stage.world.note("scene", "writes to an ended transaction", code=code.name)
    else:
        code = await producer.end(former, commits=True)
        stage.world.note("scene", "commits at the former coordinator", code=code.name)
        if code is ErrorCode.NONE:
            stage.notes.complain(stage.world, "scene", "a transaction that was aborted is committed")
    server.lag = 0.0
    return True


async def _must_be_written(producer: V1Producer, leader: BrokerMachine, place: Place, transaction: Transaction) -> None:
    for _ in range(TRIES):
        code = await producer.write(leader, place, transaction)
        if code is ErrorCode.NONE:
            return
        await asyncio.sleep(RETRY_SECONDS)
    raise Missed(f"a record is not accepted: {code.name}")


def _on_different_servers(stage: Stage, controller: BrokerMachine) -> tuple[BrokerMachine, BrokerMachine]:
    """Return two brokers, of which the first is connected to another server of the store than the second and than the
    controller. Raises Missed.
    """
    for former in stage.others(controller):
        for successor in stage.others(former):
            away = {stage.store_server(each) for each in (successor, controller)}
            if stage.store_server(former) not in away:
                return former, successor
    raise Missed("the brokers share a server of the store")


@scene(
    SCENES,
    "compacted coordinators",
    "coordinators load logs that are compacted at that moment, and die while they write or are compacted",
    others=(
        *("payer-1", "two-phase-1", "pipeline-1", "member-1", "newer-member-1", "mixed-member-1", "ghost-1"),
        *("sharer-1", "streams-member-1", "newer-ghost-1"),
    ),
    workloads=("offsets-watcher",),
    settings=COMPACTED,
    topic=SMALL_SEGMENTS,
    actors=("scene-payer-1", "scene-payer-2"),
    seconds=14.0,
)
async def compacted_coordinators(stage: Stage) -> bool:
    random = stage.random
    topic = random.choice([topic for topic in INTERNAL if stage.places(topic)])
    places = stage.places(topic)
    for _ in range(random.choice((1, 2, 3))):
        place = random.choice(places)
        leader = stage.leader(place)
        how = random.choice(("elect", "kill", "power", "compaction"))
        stage.world.note("scene", "moves a coordinator", partition=str(place), how=how)
        if how == "elect":
            await stage.lead(random.choice(stage.followers(place)), place)
        else:
            leader.hold()
            if how == "compaction":
                leader.disk_troubles.doomed_file = random.choice((".cleaned", ".swap", ".deleted", "cleaner-offset"))
                await stage.until(lambda: not leader.is_running, "it dies in compaction", 4.0)  # noqa: B023
            elif how == "power":
                leader.cut_power()
            else:
                leader.kill()
            await stage.until_led(place, but_by=leader)
            leader.let_start()
            await stage.until_serving(leader)
        await stage.pause(0.1, 1.5)
    stage.check_logs(*places)
    return True


@scene(
    SCENES,
    "damaged coordinator",
    "a broker loads a coordinator whose log has a flipped bit in the topic name of an open transaction",
    settings=SYNCED,
    topic=SMALL_SEGMENTS,
    actors=("scene-writer-1", "scene-payer-1"),
    seconds=16.0,
)
async def damaged_coordinator(stage: Stage) -> bool:
    """A coordinator that replays the damaged record ends the transaction in a topic that does not exist: the records in
    the real partition are committed with the producer's next transaction. At last the disk is exchanged.
    """
    random, place, history = stage.random, stage.place(), stage.notes.history
    sound, damaged = stage.others()[:2]
    await stage.lead(sound, *stage.places(TRANSACTIONS))
    name = f"unlucky-{random.randrange(10**9)}"
    producer, leader = V1Producer(stage, name), stage.leader(place)
    await producer.init(sound)
    first = history.transaction("unlucky")
    await producer.add(sound, place)
    await _must_be_written(producer, leader, place, first)
    where = await _until_synced(stage, damaged, name)
    _damage(stage, damaged, where)
    await stage.lead(damaged, *stage.places(TRANSACTIONS))
    code = ErrorCode.REQUEST_TIMED_OUT
    for _ in range(5):
        code = await producer.end(damaged, commits=False)
        if code not in BUSY:
            break
        await stage.pause(0.1, 0.3)
    stage.world.note("scene", "aborts at the damaged coordinator", code=code.name)
    is_replayed = code is ErrorCode.NONE
    if is_replayed:
        history.ended(first, End.ABORTED)
        second = history.transaction("unlucky")
        await producer.add(damaged, place)
        await _must_be_written(producer, stage.leader(place), place, second)
        await producer.end_for_sure(damaged, commits=True)
        history.ended(second, End.COMMITTED)
    await stage.lead(sound, *stage.places(TRANSACTIONS))
    if not is_replayed:
        await producer.end_for_sure(sound, commits=False)
        history.ended(first, End.ABORTED)
    await stage.until(lambda: has_others_in_sync(stage.world, damaged.number), "other replicas are in sync")
    exchange_disk(stage.world, damaged)
    damaged.let_start()
    await stage.until_serving(damaged)
    return True


async def _until_synced(stage: Stage, machine: BrokerMachine, transactional_id: str) -> tuple[str, int]:
    """Wait until the machine has on its disk that the transaction is open; return the path of the file and the position
    of the topic's name. Raises Missed.
    """
    found: list[tuple[str, int]] = []

    def find() -> bool:
        for path, inode in machine.storage.files():
            if TRANSACTIONS in path and path.endswith(".log"):
                content = inode.durable
                key = content.rfind(transactional_id.encode())
                value = key + len(transactional_id)
                position = content.find(TOPIC.encode(), value, value + VALUE_BYTES)
                if min(key, position) >= 0:
                    found.append((path, position))
        return bool(found)

    await stage.until(find, f"{machine.name} has synced the open transaction")
    return found[0]


def _damage(stage: Stage, machine: BrokerMachine, where: tuple[str, int]) -> None:
    """Flip a bit of a letter, so that the text remains a legal topic name."""
    path, position = where
    stage.world.note("scene", "changes a bit", broker=machine.name, path=path, position=position)
    for at, inode in machine.storage.files():
        if at == path:
            inode.rot(position, 0)
    stage.world.rotted.setdefault(machine.name, set()).add(PurePosixPath(path).parent.name)
