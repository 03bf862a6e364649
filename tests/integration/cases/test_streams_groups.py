"""Tests a streams group (KIP-1071) on a live broker: internal topics, tasks, settings, and what remains after a kill.

The member of the group is simulated; `tests/interop/test_streams_groups.py` tests Kafka Streams itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker_process import BrokerFactory, BrokerProcess
from raw_client import RawClient
from streams_members import QUICK, StreamsMember, commit, word_count

from oncelog import Admin
from oncelog import errors as oncelog_errors
from oncelog.admin import AlterConfig, ConfigResource, NewTopic, ResourceType
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.streams_group_heartbeat import StatusCode

PARTITIONS = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("streams") / "data", QUICK)
    with process:
        yield process
    assert "Traceback" not in process.log.read_text()


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        client.call(FindCoordinatorRequest(coordinator_keys=["g"]), ApiKey.FIND_COORDINATOR, 6)
        yield client


async def test_a_member_gets_its_internal_topics_and_tasks(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    async with Admin(broker.address) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        member = StreamsMember(client, group, "m1", word_count(topic, group))
        answer = member.join()
        assert {status.status_code for status in answer.status} == {StatusCode.MISSING_INTERNAL_TOPICS}
        member.until_it_has(2 * PARTITIONS)
        names = [f"{group}-repartition", f"{group}-changelog"]
        topics = await admin.describe_topics(names)
        assert [len(topics[name].partitions) for name in names] == [PARTITIONS, PARTITIONS]
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        configs = await admin.describe_configs(resources)
        assert [configs[each]["cleanup.policy"].value for each in resources] == ["delete", "compact"]

        (listed,) = [each for each in await admin.groups.list() if each.group_id == group]
        assert (listed.group_type, listed.protocol_type, listed.state) == ("streams", "streams", "Stable")
        described = (await admin.groups.describe([group]))[group]
        assert (described.group_type, described.state, described.epoch) == ("streams", "Stable", member.epoch)
        (shown,) = described.members
        assert shown.active_tasks == tuple(f"{part}_{number}" for part in (0, 1) for number in range(PARTITIONS))
        assert {name for name, _ in shown.assignment} == {topic, f"{group}-repartition"}
        with pytest.raises(oncelog_errors.KafkaError) as refused:
            await admin.groups.delete([group])
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP

        member.epoch = -1
        member.beat()
        await admin.groups.delete([group])
        assert group not in {each.group_id for each in await admin.groups.list()}


async def test_a_group_has_settings_of_its_own(
    broker: BrokerProcess, client: RawClient, topic: str, group: str
) -> None:
    resource = ConfigResource.group(group)
    async with Admin(broker.address) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        for name, wrong in (
            ("streams.num.standby.replicas", "3"),
            ("streams.heartbeat.interval.ms", "1"),
            ("streams.session.timeout.ms", "1"),
            ("streams.initial.rebalance.delay.ms", "-1"),
        ):
            with pytest.raises(oncelog_errors.KafkaError):
                await admin.incremental_alter_configs({resource: [AlterConfig(name, wrong)]})
        changes = [
            AlterConfig("streams.num.standby.replicas", "1"),
            AlterConfig("streams.heartbeat.interval.ms", "6000"),
        ]
        await admin.incremental_alter_configs({resource: changes})
        members = [StreamsMember(client, group, name, word_count(topic, group)) for name in ("m1", "m2")]
        for member in members:
            member.join()
        for member in members:
            member.until_it_has(PARTITIONS)
            assert member.beat().heartbeat_interval_ms == 6_000
        described = (await admin.groups.describe([group]))[group]
        assert described.state == "Stable"
        standbys = sorted(task for member in described.members for task in member.standby_tasks or ())
        assert standbys == [f"1_{number}" for number in range(PARTITIONS)]


async def test_a_group_survives_the_death_of_its_broker(broker_factory: BrokerFactory, topic: str, group: str) -> None:
    broker = broker_factory(QUICK)
    broker.start()
    async with Admin(broker.address) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    with RawClient(broker.port) as client:
        client.call(FindCoordinatorRequest(coordinator_keys=[group]), ApiKey.FIND_COORDINATOR, 6)
        member = StreamsMember(client, group, "m1", word_count(topic, group))
        member.join()
        member.until_it_has(2 * PARTITIONS)
        commit(member, topic, 5)
    had, epoch = member.active, member.epoch
    broker.kill()
    broker.start()
    with RawClient(broker.port) as client:
        client.call(FindCoordinatorRequest(coordinator_keys=[group]), ApiKey.FIND_COORDINATOR, 6)
        member.client = client
        answer = member.beat()
        assert (answer.member_epoch, answer.active_tasks, answer.status) == (epoch, None, [])
        answer = member.beat(active_tasks=[], standby_tasks=[], warmup_tasks=[])
        assert (answer.member_epoch, member.active, answer.status) == (epoch, had, []), "a claim of no tasks"
        commit(member, topic, 6)
    async with Admin(broker.address) as admin:
        described = (await admin.groups.describe([group]))[group]
        offsets = await admin.groups.offsets(group)
    assert described.state == "Stable"
    assert len(described.members[0].active_tasks or ()) == len(had)
    assert {where.topic: offset.offset for where, offset in offsets.items()} == {topic: 6}
