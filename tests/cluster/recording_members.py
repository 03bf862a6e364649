"""Members of consumer groups, of oncelog and librdkafka, that record which records they read and which offsets they
commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import confluent_kafka
from recording_clients import PATIENCE_MS, PATIENCE_SECONDS, REFRESH_MS
from tests.support.background import Background

import oncelog
from oncelog_testing.history.events import Commit, Outcome, Place, Reading
from oncelog_testing.history.recorder import History

_log = logging.getLogger("group members")
"""pytest shows the lines of this logger for a failed test: the events of the group's members, and librdkafka's log
lines about partitions and offsets.
"""
_log.setLevel(logging.DEBUG)

MEMBER_SESSION_MS = 6000
POLL_SECONDS = 0.2
SYSLOG_DEBUG = 7
STANDS_STILL = (confluent_kafka.KafkaError.NOT_COORDINATOR, confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE)
"""Errors of OffsetFetch after which librdkafka 2.16 does not retry, and reads none of its assigned partitions until the
group rebalances. After other errors librdkafka recovers without help.
"""
RECORDS_PER_POLL = 20


def begin_at_zero(addresses: str, history: History, group: str, places: Collection[Place]) -> None:
    """Commit offset 0 for each of these partitions, before the group's first member joins.

    If no offset is committed, librdkafka 2.16 requests the first offset from the leader. If the partition is revoked
    before the response arrives, librdkafka requests the first offset again later, and reads records that by then belong
    to another member. When librdkafka owns the partition again, it returns these records, although their position is
    wrong. librdkafka then commits the position after these records, so the group's committed offset goes back.
    """
    commits = [history.commit(group, place, 0) for place in places]

    async def commit() -> None:
        async with oncelog.Admin(addresses) as admin:
            await admin.groups.alter_offsets(group, {oncelog.TopicPartition(*place): 0 for place in places})

    asyncio.run(commit())
    for each in commits:
        history.commit_answered(each)


class Member(Background):
    """A member of a consumer group that reads a topic and commits its position after each poll."""

    def __init__(
        self, addresses: str, history: History, name: str, group: str, topic: str, instance: str | None
    ) -> None:
        """With `instance` the member is a static member."""
        super().__init__(PATIENCE_SECONDS)
        self.addresses = addresses
        self.history = history
        self.name = name
        self.group = group
        self.topic = topic
        self.instance = instance
        self._readings: dict[Place, Reading] = {}
        self._unsure: dict[Place, int] = {}
        """Offsets whose commit has failed; the next commit includes them, because otherwise the last offsets might
        never be committed.
        """

    def note(self, place: Place, records: list[tuple[int, bytes]]) -> None:
        """Record that a poll has returned these records. If these records do not follow the previous records, the group
        has changed the member's position.
        """
        reading = self._readings.get(place)
        if reading is None or not reading.records or records[0][0] <= reading.records[-1][0]:
            _log.debug("%s reads %s from %d on", self.name, place, records[0][0])
            reading = self._readings[place] = self.history.reading(self.name, place)
        reading.records += records

    def forget(self) -> None:
        """Called when the member loses or gets partitions: its next records may begin at any offset."""
        _log.debug("%s is given partitions, or they are taken away", self.name)
        self._readings.clear()
        self._unsure.clear()

    def to_commit(self, read: dict[Place, int]) -> dict[Place, int]:
        """Return the offsets to commit; `read` are the positions after the last poll."""
        return {**self._unsure, **read}

    def commits(self, offsets: dict[Place, int]) -> list[Commit]:
        _log.debug("%s commits %s", self.name, offsets)
        return [self.history.commit(self.group, place, offset) for place, offset in offsets.items()]

    def committed(self, commits: list[Commit]) -> None:
        self._unsure.clear()
        for commit in commits:
            self.history.commit_answered(commit)

    def perhaps_committed(self, commits: list[Commit]) -> None:
        _log.debug("%s has perhaps committed", self.name)
        for commit in commits:
            self._unsure[commit.place] = commit.offset
            self.history.commit_answered(commit, Outcome.UNKNOWN)


class Forgets(oncelog.RebalanceListener):
    def __init__(self, member: Member) -> None:
        self._member = member

    async def on_assigned(self, partitions: Collection[oncelog.TopicPartition]) -> None:
        self._member.forget()

    async def on_revoked(self, partitions: Collection[oncelog.TopicPartition]) -> None:
        self._member.forget()


class OncelogMember(Member):
    options: ClassVar[Mapping[str, Any]] = {
        "partition_assignment_strategy": ("range",),
        "session_timeout_ms": MEMBER_SESSION_MS,
        "heartbeat_interval_ms": 500,
    }

    def _work(self) -> None:
        asyncio.run(self._read_all())

    async def _read_all(self) -> None:
        async with oncelog.Consumer(
            self.addresses,
            group_id=self.group,
            group_instance_id=self.instance,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
            request_timeout_ms=5000,
            default_api_timeout_ms=PATIENCE_MS,
            allow_auto_create_topics=False,
            **self.options,
        ) as consumer:
            consumer.subscribe([self.topic], listener=Forgets(self))
            while not self.is_over:
                found = await consumer.poll(int(POLL_SECONDS * 1000), RECORDS_PER_POLL)
                offsets = {}
                for (topic, index), records in found.items():
                    place = Place(topic, index)
                    self.note(place, [(record.offset, bytes(record.value or b"")) for record in records])
                    offsets[place] = records[-1].offset + 1
                offsets = self.to_commit(offsets)
                if not offsets:
                    continue
                commits = self.commits(offsets)
                try:
                    await consumer.commit({oncelog.TopicPartition(*place): at for place, at in offsets.items()})
                except oncelog.KafkaError:
                    self.perhaps_committed(commits)
                else:
                    self.committed(commits)


class OncelogConsumerMember(OncelogMember):
    """A member of a group of the consumer protocol (KIP-848), in which the broker assigns partitions."""

    options: ClassVar[Mapping[str, Any]] = {"group_protocol": "consumer"}


class LibrdkafkaMember(Member):
    options: ClassVar[Mapping[str, Any]] = {
        "partition.assignment.strategy": "range",
        "session.timeout.ms": MEMBER_SESSION_MS,
        "heartbeat.interval.ms": 500,
    }

    def _work(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.addresses,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "socket.timeout.ms": 5000,
            "fetch.wait.max.ms": 200,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": REFRESH_MS,
            "log_level": SYSLOG_DEBUG,
            "debug": "cgrp,topic",
            **self.options,
        }
        if self.instance is not None:
            settings["group.instance.id"] = self.instance
        while not self.is_over:
            consumer = confluent_kafka.Consumer(settings, logger=_log)
            consumer.subscribe([self.topic], on_assign=lambda *_: self.forget(), on_revoke=lambda *_: self.forget())
            try:
                self._read(consumer)
            finally:
                consumer.close()

    def _read(self, consumer: confluent_kafka.Consumer) -> None:
        """Read until the test is over, or until the consumer makes no progress for too long."""
        while not self.is_over:
            messages = consumer.consume(RECORDS_PER_POLL, POLL_SECONDS)
            self._take(consumer, messages)
            if any(message.error() and message.error().code() in STANDS_STILL for message in messages):
                return

    def _take(self, consumer: confluent_kafka.Consumer, messages: list[Any]) -> None:
        offsets: dict[Place, int] = {}
        for message in messages:
            if message.error():
                continue
            place = Place(message.topic(), message.partition())
            self.note(place, [(message.offset(), message.value())])
            offsets[place] = message.offset() + 1
        offsets = self.to_commit(offsets)
        if not offsets:
            return
        commits = self.commits(offsets)
        told = [confluent_kafka.TopicPartition(*place, offset) for place, offset in offsets.items()]
        try:
            answered = consumer.commit(offsets=told, asynchronous=False)
        except confluent_kafka.KafkaException:
            self.perhaps_committed(commits)
            return
        if any(partition.error for partition in answered or ()):
            self.perhaps_committed(commits)
        else:
            self.committed(commits)


class LibrdkafkaConsumerMember(LibrdkafkaMember):
    """A member of a group of the consumer protocol (KIP-848)."""

    options: ClassVar[Mapping[str, Any]] = {"group.protocol": "consumer"}


MEMBERS: Mapping[str, type[Member]] = {
    "oncelog": OncelogMember,
    "librdkafka": LibrdkafkaMember,
    "oncelog-848": OncelogConsumerMember,
    "librdkafka-848": LibrdkafkaConsumerMember,
}
