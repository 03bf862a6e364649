"""The image is immutable: a change creates a new image and leaves the old one unchanged."""

import dataclasses

import pytest

from oncelog_broker.metadata.model.image import NO_LEADER, Broker, ClusterImage, PartitionState, Topic
from oncelog_broker.metadata.model.payloads import Endpoint
from oncelog_protocol.uuids import ZERO_UUID

ID_A, ID_B = b"a" * 16, b"b" * 16


def topic(name="t", topic_id=ID_A, partitions=1, leader=1):
    return Topic(name, topic_id, {p: PartitionState((leader, 2), (leader,), leader, 0, 0) for p in range(partitions)})


def broker(broker_id=1):
    return Broker(broker_id, 7, (Endpoint("INTERNAL", "i", 1), Endpoint("CLIENT", "c", 2)))


EMPTY = ClusterImage("cluster")


def test_topics_are_found_by_name_and_by_id():
    image = EMPTY.with_topic(topic())
    assert image.topic("t") is image.topic_by_id(ID_A)
    assert image.topic("u") is None
    assert image.topic_by_id(ID_B) is None
    assert EMPTY.topic("t") is None


def test_a_topic_without_an_id_is_not_found_by_the_zero_id():
    image = EMPTY.with_topic(topic(topic_id=ZERO_UUID))
    assert image.topic("t") is not None
    assert image.topic_by_id(ZERO_UUID) is None


def test_a_re_created_topic_is_no_longer_found_by_its_old_id():
    image = EMPTY.with_topic(topic()).with_topic(topic(topic_id=ID_B))
    assert image.topic_by_id(ID_A) is None
    assert image.topic_by_id(ID_B) is image.topic("t")
    gone = image.without_topic("t").without_topic("t")
    assert (gone.topics, gone.names_by_id) == ({}, {})


def test_leader_of_a_partition_is_a_live_broker():
    image = EMPTY.with_broker(broker(1)).with_topic(topic())
    assert image.leader_of("t", 0).id == 1
    assert image.leader_of("t", 9) is None
    assert image.leader_of("u", 0) is None
    assert image.without_broker(1).leader_of("t", 0) is None


def test_a_single_partition_of_an_image_is_replaced():
    before = EMPTY.with_topic(topic(partitions=2))
    after = before.with_partition("t", 1, PartitionState((1,)))
    assert after.partition("t", 1).leader == NO_LEADER
    assert after.partition("t", 0) is before.partition("t", 0)
    assert before.partition("t", 1).leader == 1
    with pytest.raises(KeyError):
        before.with_partition("u", 0, PartitionState((1,)))


def test_the_partitions_on_a_broker_are_listed():
    image = EMPTY.with_topic(topic(partitions=2)).with_topic(topic("u", ID_B, leader=3))
    assert [(t.name, p) for t, p, _ in image.partitions_on(1)] == [("t", 0), ("t", 1)]
    assert [(t.name, p) for t, p, _ in image.partitions_on(2)] == [("t", 0), ("t", 1), ("u", 0)]


def test_overrides_are_added_and_removed():
    image = EMPTY.with_topic_config("t", {"a": "1"}).with_topic_config("u", {"b": "2"})
    assert image.config_of_topic("t") == {"a": "1"}
    assert image.with_topic_config("t", {}).topic_configs == {"u": {"b": "2"}}
    assert EMPTY.config_of_topic("t") == {}
    assert EMPTY.with_topic_config("t", {}).topic_configs == {}


def test_a_brokers_own_overrides_come_before_those_for_all():
    image = EMPTY.with_broker_configs({None: {"a": "all", "b": "all"}, 1: {"a": "own"}})
    assert image.config_of_broker(1) == {"a": "own", "b": "all"}
    assert image.config_of_broker(2) == {"a": "all", "b": "all"}


def test_an_endpoint_is_found_by_its_listener():
    assert broker().endpoint("CLIENT").host == "c"
    assert broker().endpoint("NONE") is None


def test_topic_changes_name_what_is_new_gone_and_made_again():
    kept, changed, again, gone = (topic(name, name.encode() * 16) for name in "kcag")
    before = EMPTY.with_topics([kept, changed, again, gone])
    changed_now, again_now, new = topic("c", b"c" * 16, 2), topic("a", ID_B), topic("n", b"n" * 16)
    after = before.with_topics([changed_now, again_now, new], ["g"]).with_topic_config("k", {"x": "1"})
    changes = after.topic_changes_since(before)
    assert sorted(t.name for t in changes.changed) == ["a", "c", "n"]
    assert sorted(t.name for t in changes.removed) == ["a", "g"]
    assert all(t in (again, gone) for t in changes.removed)
    assert before.with_controller(1).topic_changes_since(before) == ((), ())


def test_images_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        EMPTY.controller_id = 1
    assert EMPTY.with_controller(4).controller_id == 4


def test_a_leader_that_has_come_back_since_it_was_named_leads_nothing() -> None:
    image = ClusterImage("", {1: Broker(1, 100, ())})
    for leader, written, is_led in ((1, 101, True), (1, 99, False), (1, -1, True), (2, 101, False), (-1, 101, False)):
        assert image.is_led(PartitionState((1, 2), (1,), leader, 0, 0, written=written)) is is_led
