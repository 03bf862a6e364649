"""A broker that does not lead a partition includes the leader and its address in the response (KIP-951)."""

import asyncio

import pytest
from tests.support.served import FOLLOWER, LEADER, TOPIC, Client, Served, produce
from tests.support.storage import make_batch

from oncelog.connection.versions import CLIENT_MAX
from oncelog_broker.metadata.model.image import Broker, PartitionState, Topic
from oncelog_broker.metadata.model.payloads import Endpoint
from oncelog_broker.server.request import leader_hints
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.produce import ProduceRequest

ID = b"i" * 16
FetchPartition = FetchRequest.FetchTopic.FetchPartition


class Moved(Served):
    """A broker that knows FOLLOWER as the leader of its partitions in leader epoch 9."""

    def __init__(self, directory, **options):
        super().__init__(directory, **options)
        self.led_by(FOLLOWER)

    def led_by(self, broker_id, count=3):
        endpoints = (Endpoint("PLAINTEXT", "there", 9093), Endpoint("PEER", "inside", 1))
        moved = {index: PartitionState((LEADER, FOLLOWER), (FOLLOWER,), broker_id, 9) for index in range(count)}
        image = self.services.image.with_broker(Broker(FOLLOWER, 1, endpoints, rack="r"))
        self.services.image = image.with_topic(Topic(TOPIC, ID, moved))

    def leader(self, topic, index):
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def leader_by_id(self, topic_id, index):
        return self.leader(TOPIC, index)

    led_by_name = leader
    led_by_id = leader_by_id


@pytest.fixture
async def served(tmp_path):
    served = Moved(tmp_path)
    yield served
    served.leave()


def hints(response):
    """Return the hints in a response: the leader of each partition, and the leaders' addresses."""
    told = []
    for topic in response.responses:
        for partition in getattr(topic, "partition_responses", None) or topic.partitions:
            hint = partition.current_leader
            told.append(hint and (hint.leader_id, hint.leader_epoch))
    return told, [(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]


def fetch(*indexes, version=16, **options):
    partitions = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in indexes]
    topic = FetchRequest.FetchTopic(topic=TOPIC, topic_id=ID, partitions=partitions)
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic], forgotten_topics_data=[], **options)


async def answer(served, request, api, version):
    client = Client(served)
    client.send(request, api=api, version=version)
    ((_, response),) = await client.answered(1)
    return response


THERE = [(FOLLOWER, "there", 9093, "r")]


@pytest.mark.parametrize("version", [10, 12, 13])
async def test_a_refused_producer_learns_the_leader_and_its_address(served, version):
    request = produce(bytes(make_batch()))
    request.topic_data[0].topic_id = ID
    response = await answer(served, request, ApiKey.PRODUCE, version)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert hints(response) == ([(FOLLOWER, 9)], THERE)


@pytest.mark.parametrize("version", [16, 18])
async def test_a_refused_consumer_learns_the_leader_and_its_address(served, version):
    assert hints(await answer(served, fetch(0), ApiKey.FETCH, version)) == ([(FOLLOWER, 9)], THERE)


@pytest.mark.parametrize("version", [CLIENT_MAX[ApiKey.FETCH], 15])
async def test_a_consumer_learns_the_leader_even_without_its_address(served, version):
    """The oncelog consumer finds the new leader's address in the metadata that it already has."""
    assert hints(await answer(served, fetch(0), ApiKey.FETCH, version)) == ([(FOLLOWER, 9)], [])


@pytest.mark.parametrize(("api", "version"), [(ApiKey.PRODUCE, 9), (ApiKey.FETCH, 11)])
async def test_older_clients_get_no_leader_hint(served, api, version):
    request = produce(bytes(make_batch())) if api is ApiKey.PRODUCE else fetch(0)
    assert hints(await answer(served, request, api, version)) == ([None], [])


async def test_no_leader_hint_names_this_fenced_broker_or_a_dead_one(served):
    served.led_by(LEADER)
    assert hints(await answer(served, produce(bytes(make_batch())), ApiKey.PRODUCE, 12)) == ([None], [])
    served.led_by(5)
    assert hints(await answer(served, produce(bytes(make_batch())), ApiKey.PRODUCE, 12)) == ([None], [])


async def test_a_reader_of_an_older_epoch_is_told_the_newer_one(tmp_path):
    served = Moved(tmp_path)
    served.led_by(LEADER)
    served.services.image = served.services.image.with_broker(Broker(LEADER, 1, (Endpoint("PLAINTEXT", "here", 9092),)))

    def fenced(topic, index):
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)

    served.leader = fenced
    response = await answer(served, fetch(0), ApiKey.FETCH, 16)
    assert hints(response) == ([(LEADER, 9)], [(LEADER, "here", 9092, None)])
    assert hints(await answer(served, fetch(0), ApiKey.FETCH, 15)) == ([None], [])
    served.leave()


async def test_a_response_has_a_bounded_number_of_leader_hints(served, monkeypatch):
    monkeypatch.setattr(leader_hints, "MAX_HINTS", 2)
    data = ProduceRequest.TopicProduceData.PartitionProduceData
    request = produce(bytes(make_batch()))
    request.topic_data[0].partition_data = [data(index=index, records=bytes(make_batch())) for index in range(3)]
    told, nodes = hints(await answer(served, request, ApiKey.PRODUCE, 12))
    assert told == [(FOLLOWER, 9), (FOLLOWER, 9), None]
    assert nodes == THERE


async def test_a_waiting_produce_gets_a_hint_when_leadership_moves(tmp_path):
    served = Served(tmp_path)
    partition = served.partitions[0]
    partition.lead(3, (LEADER, FOLLOWER), (LEADER, FOLLOWER))
    client = Client(served)
    client.send(produce(bytes(make_batch())), version=12)
    await asyncio.sleep(0)
    assert not client.has_answers(1)
    Moved.led_by(served, FOLLOWER)
    partition.follow(FOLLOWER, 9)
    ((_, response),) = await client.answered(1)
    assert hints(response) == ([(FOLLOWER, 9)], THERE)
    served.leave()
