"""Tests that a command that is refused reports the actual reason."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable

import pytest
from broker_process import BrokerProcess
from warm_commands import run_oncelog_text

from oncelog import Admin, Consumer, ConsumerGroupMetadata, NewTopic, Producer, TopicPartition

QUICK_SECONDS = 20.0
"""Limit in seconds for a refused command; the limit is less than default.api.timeout.ms, the time for which a client
waits for an unreachable broker.
"""


@pytest.fixture
async def made(broker: BrokerProcess, topic: str) -> AsyncIterator[str]:
    async with Admin(broker.address) as admin:
        await admin.create_topics([NewTopic(topic, num_partitions=2)])
    yield topic


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("topics describe NOPE", "NOPE: unknown topic"),
        ("topics create TOPIC", "already exists"),
        (
            "topics create NOPE --replication-factor 3",
            "Replication factor 3 is larger than the number of live brokers, 1",
        ),
        ("topics alter TOPIC --partitions 1", "has 2 partitions already, 1 would not be an increase"),
        ("topics alter TOPIC --config retention.ms=x", "Invalid value 'x' for configuration retention.ms"),
        ("topics delete --yes NOPE", "Topic 'NOPE' does not exist"),
        ("groups describe NOPE", "GROUP_ID_NOT_FOUND: NOPE: Group NOPE not found"),
        ("groups delete --yes NOPE", "GROUP_ID_NOT_FOUND"),
        ("groups reset NOPE --to earliest", "GROUP_ID_NOT_FOUND: NOPE: Group NOPE not found"),
        ("groups reset g --topic NOPE --to earliest", "NOPE: unknown topic"),
        ("groups reset g --topic TOPIC:9 --to earliest", "TOPIC has the partitions 0 to 1, not 9"),
        ("groups reset g --topic TOPIC --to 0 --to-file /nowhere/plan", "/nowhere/plan"),
        ("txns describe NOPE", "TRANSACTIONAL_ID_NOT_FOUND"),
        ("txns fence NOPE", "TRANSACTIONAL_ID_NOT_FOUND"),
        ("txns abort TOPIC:0 --start-offset 0", "no open transaction begins at offset 0"),
        ("txns find-hanging --broker-id 9", "unknown broker 9: the brokers are 1"),
        ("txns list --state Nonsense", "unknown transaction state: Nonsense"),
        ("configs describe --broker 9", "unknown broker 9: the brokers are 1"),
        ("configs set --broker 9 num.partitions=3", "unknown broker 9: the brokers are 1"),
        ("configs delete --broker 9 num.partitions", "unknown broker 9: the brokers are 1"),
        ("configs set --topic TOPIC a=b", "Unknown configuration a"),
        ("configs describe --topic TOPIC nokey", "topic TOPIC: unknown setting 'nokey'"),
        ("log-dirs --broker 9", "unknown broker 9: the brokers are 1"),
        ("reassign generate --to 9 TOPIC", "these brokers are not alive: 9"),
        ("reassign generate --current /nowhere/plan TOPIC", "/nowhere/plan: No such file or directory"),
        ("users remove NOPE", "a user credential that does not exist: NOPE"),
        (
            "acls add --principal User:x --operation read --topic TOPIC",
            "SECURITY_DISABLED: allow User:x from * read on literal topic 'TOPIC': No Authorizer is configured",
        ),
        ("consume TOPIC:5", "TOPIC has the partitions 0 to 1, not 5"),
        ("consume NOPE", "NOPE: unknown topic"),
        ("explain NOPE", "NOPE: unknown topic"),
        ("leaders elect NOPE", "NOPE: unknown topic"),
    ],
)
async def test_the_reason_is_the_real_one(broker: BrokerProcess, made: str, command: str, reason: str) -> None:
    arguments = command.replace("TOPIC", made).split()
    began = time.monotonic()
    done = run_oncelog_text(*arguments, "--bootstrap-server", broker.address)
    assert done.returncode in (1, 2), done.stdout
    assert reason.replace("TOPIC", made) in done.stderr
    assert time.monotonic() - began < QUICK_SECONDS


def test_a_topic_that_does_not_exist_is_the_reason_why_nothing_is_written(
    broker_factory: Callable[[dict[str, str]], BrokerProcess],
) -> None:
    broker = broker_factory({"auto.create.topics.enable": "false"})
    broker.start()
    done = run_oncelog_text("produce", "nope", "-D", "max.block.ms=4000", "-b", broker.address, stdin="x\n")
    assert done.returncode == 1
    assert (
        "topic 'nope': no metadata within 4 s: the topic does not exist, and brokers have not created it" in done.stderr
    )


async def test_a_group_with_members_is_not_moved_and_that_is_said(broker: BrokerProcess, made: str) -> None:
    group = f"{made}-live"
    async with Consumer(broker.address, group_id=group) as consumer:
        consumer.subscribe([made])
        while not consumer.assignment():
            await consumer.poll(100)
        arguments = ("groups", "reset", group, "--topic", made, "--to", "earliest", "--execute")
        done = run_oncelog_text(*arguments, "-b", broker.address)
        deleted = run_oncelog_text("groups", "delete", "--yes", group, "-b", broker.address)
    assert done.returncode == 1
    assert f"{group}: the group has members, and its offsets can only be set while it has none" in done.stderr
    assert "NON_EMPTY_GROUP" in deleted.stderr


async def test_resetting_a_group_warns_of_a_pending_transaction(broker: BrokerProcess, made: str) -> None:
    group = f"{made}-held"
    async with Producer(broker.address, transactional_id=group) as producer, producer.transaction():
        await producer.send_offsets({TopicPartition(made, 0): 0}, ConsumerGroupMetadata(group, -1, "", None))
        done = run_oncelog_text(
            "groups", "reset", group, "--topic", made, "--to", "earliest", "--execute", "-b", broker.address
        )
    assert done.returncode == 0, done.stderr
    assert (
        f"an open transaction has pending offsets of {group} ({made}:0), which replace these if it commits"
        in done.stderr
    )
