"""Runs the cells of share groups on three brokers, and lets the judge of histories check what the members got.

Each cell has a topic and a share group of its own. All records are in one partition, whose leader is not the share
coordinator, so that their requests pass the network. A first member accepts some records and leaves. Then the fault is
prepared, and a second member accepts the rest; a killed process is restarted or replaced.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from foreign_clients import eventually

from kill_matrix.share_cells import ShareCell, ShareFault, ShareOutcome, ShareRole
from oncelog import Admin, KafkaError, Producer, ShareConsumer
from oncelog.admin import AlterConfig, ConfigResource
from oncelog_broker.metadata.topic_names import SHARE_GROUP_STATE
from oncelog_testing.cluster import Cluster
from oncelog_testing.history.checker import violations
from oncelog_testing.history.events import Delivery, Outcome, Place
from oncelog_testing.history.recorder import History
from oncelog_testing.topics import run

SETTINGS = {
    "zookeeper.session.timeout.ms": "3000",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.session.timeout.ms": "3000",
    "group.share.session.timeout.ms": "3000",
    "group.share.min.record.lock.duration.ms": "1000",
}
LIMIT = 10
"""The group's limit of deliveries of a record."""
GROUP_CONFIGS = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": "2000",
    "share.delivery.count.limit": str(LIMIT),
}
PARTITIONS = 3
RECORDS = 12
ACCEPTED_FIRST = 4
DELAY_MS = 3_000
"""Longer than a record is locked."""
STOPPED_MS = 60_000
"""A delay that is ended by the kill of the member."""
WAIT_SECONDS = 60.0
POLLS_AT_END, END_POLL_MS = 3, 300
WORKER = Path(__file__).with_name("share_worker.py")


class ShareStage:
    """Three brokers in which cells are run one after another; a context manager."""

    def __init__(self, directory: Path, settings: Mapping[str, str] = SETTINGS) -> None:
        self.log = directory / "members.log"
        self.cluster = Cluster(directory, settings)

    def __enter__(self) -> Self:
        self.cluster.start()
        try:
            Run(self, None).warm_up()
        except BaseException:
            self.cluster.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cluster.stop()

    def run(self, cell: ShareCell) -> ShareOutcome:
        return Run(self, cell).outcome()


class Member:
    """A process of `share_worker`, whose lines a thread notes in the history."""

    def __init__(self, history: History, name: str, where: Place, log: Path, *arguments: str) -> None:
        self._history = history
        self._name = name
        self._place = where
        with log.open("ab") as errors:
            command = [sys.executable, str(WORKER), *arguments]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self._reader = threading.Thread(target=self._read, name=name)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self._note(lines)

    def _note(self, lines: Iterable[str]) -> None:
        got: list[Delivery] = []
        for line in lines:
            match json.loads(line):
                case ["got", partition, offset, count]:
                    assert partition == self._place.index
                    got.append(self._history.delivered(self._place.topic, self._name, self._place, offset, count))
                case ["accepting"]:
                    for delivery in got:
                        self._history.accepting(delivery)
                case ["outcome", is_confirmed]:
                    for delivery in got:
                        outcome = Outcome.ACKNOWLEDGED if is_confirmed else Outcome.FAILED
                        self._history.acceptance_answered(delivery, outcome)
                    got = []
                case ["error", _]:  # the outcome of an acceptance is unknown
                    got = []

    def until_ended(self) -> None:
        """Wait until the member has left its group. Raises AssertionError for an unexpected end."""
        assert self._process.wait(WAIT_SECONDS) == 0, f"{self._name} ended with {self._process.returncode}"
        self._reader.join()

    def kill(self) -> None:
        """Kill the process (kill -9); returns when all of its lines are noted."""
        self._process.kill()
        self._process.wait()
        self._reader.join()


class Run:
    """One run; `cell` is None for the run that creates the internal topics."""

    def __init__(self, stage: ShareStage, cell: ShareCell | None) -> None:
        self._stage = stage
        self._cluster = stage.cluster
        self._cell = cell
        self._topic = self._group = f"shares-{uuid.uuid4().hex[:8]}"
        self._place = Place(self._topic)
        self._history = History()
        self._names = (f"member-{number}" for number in range(1, 100))

    def warm_up(self) -> None:
        """Let a group accept some records, so that the internal topics exist, and each has a leader."""
        self._prepare()
        self._accept_first()

    def outcome(self) -> ShareOutcome:
        began = time.monotonic()
        problems = []
        try:
            self._prepare()
            self._accept_first()
            self._accept_rest()
            self._look()
            problems = [str(violation) for violation in violations(self._history)]
        except Exception as error:  # an error in a run makes one cell fail, and the matrix continues
            problems.append(str(error) or repr(error))
        finally:
            self._cluster.mend()
        return ShareOutcome(problems, len(self._history.deliveries), time.monotonic() - began)

    # --- the run

    def _prepare(self) -> None:
        """Create the topic, configure the group, and write the records to a partition that the share coordinator does
        not lead.
        """
        self._cluster.create_topic(self._topic, PARTITIONS)
        coordinator = self._leader_of(SHARE_GROUP_STATE) if self._cell is not None else -1
        leaders = {index: self._leader_of(self._topic, index) for index in range(PARTITIONS)}
        self._place = Place(self._topic, next(index for index, leader in leaders.items() if leader != coordinator))
        run(self._write)

    async def _write(self) -> None:
        place, final = self._place, list[tuple[int, bytes]]()
        changes = [AlterConfig(key, value) for key, value in GROUP_CONFIGS.items()]
        async with Admin(self._cluster.bootstrap_servers) as admin:
            await admin.incremental_alter_configs({ConfigResource.group(self._group): changes})
        async with Producer(self._cluster.bootstrap_servers) as producer:
            for number in range(RECORDS):
                value = b"%d" % number
                send = self._history.send("producer", place, value)
                future = await producer.send(place.topic, value, partition=place.index)
                self._history.acknowledged(send, (await future).offset)
                final.append((send.offset, value))
        self._history.finally_holds(place, final)

    def _accept_first(self) -> None:
        self._member(ACCEPTED_FIRST).until_ended()

    def _accept_rest(self) -> None:
        """Let a member accept the remaining records while the fault strikes."""
        assert self._cell is not None
        fault, broker = self._cell.fault, self._cluster[self._struck()]
        absent = {
            ShareFault.COORDINATOR_KILLED: self._leader_of(SHARE_GROUP_STATE),
            ShareFault.CONTROLLER_KILLED: run(self._controller),
        }
        with ExitStack() as stack:
            failing = stack.enter_context(broker.fail(self._cell.point, **_action(fault)))
            member = self._member()
            stack.callback(lambda: member.kill())  # the member that then exists
            failing.wait(WAIT_SECONDS)
            if fault is ShareFault.MEMBER_KILLED:
                member.kill()
                failing.remove()
                member = self._member()
            elif fault is ShareFault.BROKER_KILLED:
                broker.start()
            elif fault in absent:
                self._cluster[absent[fault]].kill()
                failing.remove()
            eventually(lambda: run(self._lag) == 0, "the group has accepted all records", WAIT_SECONDS)

    def _look(self) -> None:
        """Let a last member poll, which must get no record."""
        run(self._poll_at_end)
        self._history.finally_shared(self._group, self._place, LIMIT)

    async def _poll_at_end(self) -> None:
        name = next(self._names)
        async with ShareConsumer(self._cluster.bootstrap_servers, group_id=self._group) as consumer:
            consumer.subscribe([self._topic])
            for _ in range(POLLS_AT_END):
                for record in await consumer.poll(END_POLL_MS):
                    place = Place(record.topic, record.partition)
                    self._history.delivered(self._group, name, place, record.offset, record.delivery_count)

    # --- parts

    def _member(self, limit: int = 0) -> Member:
        arguments = (self._cluster.bootstrap_servers, self._group, self._topic, str(limit))
        return Member(self._history, next(self._names), self._place, self._stage.log, *arguments)

    def _struck(self) -> int:
        """Return the number of the broker at which the fault strikes."""
        assert self._cell is not None
        match self._cell.role:
            case ShareRole.LEADER:
                return self._leader_of(self._topic, self._place.index)
            case ShareRole.SHARE_COORDINATOR:
                return self._leader_of(SHARE_GROUP_STATE)
            case ShareRole.GROUP_COORDINATOR:
                return run(self._coordinator)

    def _leader_of(self, topic: str, index: int = 0) -> int:
        leaders: list[int] = []

        def is_led() -> bool:
            with suppress(KafkaError):  # a broker may not have heard of the new topic yet
                leaders.append(self._cluster.leader_of(topic, index))
            return bool(leaders) and leaders[-1] >= 0

        eventually(is_led, f"{topic}-{index} is led", WAIT_SECONDS)
        return leaders[-1]

    async def _coordinator(self) -> int:
        async with Admin(self._cluster.bootstrap_servers) as admin:
            return (await admin.shares.describe([self._group]))[self._group].coordinator_id

    async def _controller(self) -> int:
        async with Admin(self._cluster.bootstrap_servers) as admin:
            return (await admin.describe_cluster()).controller_id

    async def _lag(self) -> int:
        """Return the number of records that the group has not accepted yet; RECORDS if no coordinator knows it now."""
        async with Admin(self._cluster.bootstrap_servers) as admin:
            try:
                offsets = (await admin.shares.offsets(self._group)).values()
            except KafkaError:
                return RECORDS
        return sum(RECORDS if each.lag is None else each.lag for each in offsets)


def _action(fault: ShareFault) -> dict[str, bool | int]:
    match fault:
        case ShareFault.BROKER_KILLED | ShareFault.ABSENT:
            return {"crash": True}
        case ShareFault.MEMBER_KILLED | ShareFault.COORDINATOR_KILLED | ShareFault.CONTROLLER_KILLED:
            return {"delay": STOPPED_MS}
        case ShareFault.DELAYED:
            return {"delay": DELAY_MS}
        case ShareFault.DROPPED:
            return {"drop": True}
