"""Sends the requests of members of streams groups (KIP-1071). Groups and topics are given without the scenario's
prefix.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.interop.differential.calls import GROUP, coordinator, create
from tests.interop.differential.members import group_name, settle_groups
from tests.interop.differential.messages import Plain
from tests.interop.differential.side import PATIENCE_SECONDS, PAUSE_SECONDS, ScenarioBroken, Side

from oncelog_protocol.api import ApiKey

REBALANCE_MS: Final = 60_000
"""Rebalance timeout in milliseconds: longer than any test waits for a group."""
LEAVE: Final = -1

Tasks = dict[str, list[int]]
"""Partitions by subtopology."""


def internal(name: str, partitions: int = 0, replicas: int = 0, **configs: str) -> Plain:
    """Describe an internal topic; keys of `configs` are written with underscores in place of dots."""
    return {
        "name": name,
        "partitions": partitions,
        "replication_factor": replicas,
        "topic_configs": [{"key": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def subtopology(name: str, *sources: str, **more: Any) -> Plain:
    """Describe a subtopology that reads the topics `sources`; `more` has further fields of the message."""
    return {"subtopology_id": name, "source_topics": list(sources), **more}


def topology(*subtopologies: Plain, epoch: int = 0) -> Plain:
    return {"epoch": epoch, "subtopologies": list(subtopologies)}


def copartitioned(sources: Sequence[int] = (), repartitions: Sequence[int] = ()) -> Plain:
    """Describe topics that must have the same number of partitions, by their positions in the lists of source topics
    and repartition topics.
    """
    return {"source_topics": list(sources), "source_topic_regex": [], "repartition_source_topics": list(repartitions)}


@dataclass(slots=True)
class StreamsMember:
    """A member of a streams group. `epoch` and the tasks are those of the last response without an error."""

    side: Side
    group: str
    id: str
    topology: Plain
    process: str = ""
    epoch: int = 0
    endpoint_epoch: int = -1
    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)

    def join(self, label: str, **more: Any) -> Any:
        """Send the first heartbeat of a member, and record the response."""
        return self._ask(label, self._first() | more)

    def beat(self, label: str, **more: Any) -> Any:
        """Send a heartbeat that changes only the fields in `more`, and record the response."""
        return self._ask(label, self._heartbeat() | more)

    def own(self, label: str, **more: Any) -> Any:
        """Send a heartbeat that reports the assigned tasks as owned, and record the response."""
        return self.beat(label, **self._owned(), **more)

    def leave(self, label: str = "leave") -> Any:
        return self.beat(label, member_epoch=LEAVE)

    def quiet_join(self) -> Any:
        answer = self.side.get(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, self._first())
        self._take(answer)
        return answer

    def quiet_leave(self) -> None:
        """Leave; this deletes the group if this was its last member."""
        self.side.get(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, self._heartbeat() | {"member_epoch": LEAVE})
        self.epoch = 0
        self.side.get(ApiKey.DELETE_GROUPS, 2, {"groups_names": [group_name(self.side, self.group)]})

    def settle(self, count: int, *, standby: int = 0, **more: Any) -> StreamsMember:
        """Send heartbeats until the member has this number of active tasks, and of standby tasks; the responses are
        not recorded. Raises ScenarioBroken.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        asked = self._first() | more
        while time.monotonic() < deadline:
            answer = self.side.get(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, asked)
            if answer.error_code:
                raise ScenarioBroken(f"{self.side.name}: {answer}")
            before = self.epoch, self.active, self.standby
            self._take(answer)
            sizes = size(self.active), size(self.standby)
            if sizes == (count, standby) and before == (self.epoch, self.active, self.standby):
                return self
            asked = self._heartbeat() | self._owned()
            time.sleep(PAUSE_SECONDS)
        raise ScenarioBroken(f"{self.side.name}: {self.id} does not get {count} tasks: {answer}")

    def settle_with(self, other: StreamsMember, count: int, *, standby: int = 0, **more: Any) -> None:
        """Send heartbeats of this member, which joins if it has no epoch, and of another member until both have
        released and got their tasks and this member has this number of tasks; the responses are not recorded. Raises
        ScenarioBroken.
        """
        asked = self._heartbeat() | self._owned() if self.epoch else self._first() | more
        self._take(self.side.get(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, asked))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            before = self.epoch, other.epoch, self.active, other.active, self.standby, other.standby
            other.quiet()
            self.quiet()
            after = self.epoch, other.epoch, self.active, other.active, self.standby, other.standby
            if before == after and (size(self.active), size(self.standby)) == (count, standby):
                return
            time.sleep(PAUSE_SECONDS)
        raise ScenarioBroken(f"{self.side.name}: {self.id} does not get {count} tasks, but {self.active}")

    def await_detail(self) -> None:
        """Send heartbeats until a status says why a topic was not created, because topics are created after the
        response. Raises ScenarioBroken.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if any("fail" in one.status_detail.lower() for one in self.quiet().status or ()):
                return
            time.sleep(PAUSE_SECONDS)
        raise ScenarioBroken(f"{self.side.name}: no status says that a topic was not created")

    def quiet(self, *, says_tasks: bool = True) -> Any:
        """Send a heartbeat, which reports the assigned tasks as owned if `says_tasks`; the response is not recorded."""
        asked = self._heartbeat() | (self._owned() if says_tasks else {})
        answer = self.side.get(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, asked)
        self._take(answer)
        return answer

    def _ask(self, label: str, asked: Plain) -> Any:
        answer = self.side.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, asked, label)
        self._take(answer)
        return answer

    def _take(self, answer: Any) -> None:
        if answer is None or answer.error_code:
            return
        self.epoch = max(0, answer.member_epoch)
        if answer.active_tasks is not None:
            self.active, self.standby = tasks_of(answer.active_tasks), tasks_of(answer.standby_tasks)
        if answer.member_epoch < 0:
            self.active, self.standby = {}, {}

    def _heartbeat(self) -> Plain:
        return {
            "group_id": group_name(self.side, self.group),
            "member_id": self.id,
            "member_epoch": self.epoch,
            "endpoint_information_epoch": self.endpoint_epoch,
        }

    def _first(self) -> Plain:
        return self._heartbeat() | {
            "member_epoch": 0,
            "rebalance_timeout_ms": REBALANCE_MS,
            "topology": self.topology,
            "process_id": self.process or self.id,
            "client_tags": [],
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        }

    def _owned(self) -> Plain:
        return {"active_tasks": listed(self.active), "standby_tasks": listed(self.standby), "warmup_tasks": []}


def tasks_of(tasks: Sequence[Any] | None) -> Tasks:
    return {one.subtopology_id: sorted(one.partitions) for one in tasks or ()}


def listed(tasks: Mapping[str, Sequence[int]]) -> list[Plain]:
    return [{"subtopology_id": name, "partitions": list(partitions)} for name, partitions in tasks.items()]


def size(tasks: Tasks) -> int:
    """Return the number of tasks."""
    return sum(len(partitions) for partitions in tasks.values())


def create_known(side: Side, name: str, partitions: int = 1) -> None:
    """Create a topic, and wait until the coordinator of streams groups knows it, because Apache Kafka's coordinator
    learns of a topic later than its clients. Raises ScenarioBroken.
    """
    create(side, name, partitions)
    coordinator(side, "probe", GROUP)
    deadline = time.monotonic() + PATIENCE_SECONDS
    probe = StreamsMember(side, "probe", "probe", topology(subtopology("0", side.own(name))))
    while True:
        answer = probe.quiet_join()
        probe.quiet_leave()
        if not answer.error_code and not answer.status:
            return
        if time.monotonic() > deadline:
            raise ScenarioBroken(f"{side.name}: the coordinator does not know {name}: {answer}")
        time.sleep(PAUSE_SECONDS)


def describe_streams_groups(side: Side, *groups: str, label: str = "", **more: Any) -> Any:
    settle_groups(side)
    asked = {"group_ids": [group_name(side, group) for group in groups], **more}
    return side.ask(ApiKey.STREAMS_GROUP_DESCRIBE, 0, asked, label)
