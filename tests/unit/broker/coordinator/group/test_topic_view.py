"""The topics as groups see them: a new view is created only after a change that affects assignments."""

from __future__ import annotations

from dataclasses import replace

from tests.support.consumer_groups import topic

from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_broker.metadata.model.image import Broker, ClusterImage, PartitionState, Topic

IMAGE = ClusterImage("").with_topics([topic("t", 2), topic("u", 1)])


def with_leader(image: ClusterImage, leader: int) -> ClusterImage:
    changed = image.topics["t"]
    states = {n: replace(state, leader=leader, leader_epoch=7) for n, state in changed.partitions.items()}
    return image.with_topic(Topic("t", changed.topic_id, states))


def with_racks(image: ClusterImage, *racks: str) -> ClusterImage:
    for number, rack in enumerate(racks, 1):
        image = image.with_broker(Broker(number, 1, (), rack))
    return image


def test_leaders_and_brokers_without_racks_change_nothing() -> None:
    view = TopicView(IMAGE)
    assert view.changed(IMAGE) is view
    assert view.changed(with_leader(IMAGE, 3)) is view
    assert view.changed(IMAGE.with_broker(Broker(1, 1, ()))) is view


def test_topics_partitions_and_racks_make_a_new_view() -> None:
    view = TopicView(IMAGE)
    for changed in (
        IMAGE.with_topic(topic("v", 1)),
        IMAGE.without_topic("u"),
        IMAGE.with_topic(topic("t", 3)),
        IMAGE.with_topic(topic("t", 2, incarnation=1)),
        with_racks(IMAGE, "a"),
    ):
        assert view.changed(changed) is not view
        assert view.hash_of(["t", "u"]) == TopicView(IMAGE).hash_of(["t", "u"])


def test_replicas_count_for_the_hash_only_with_racks() -> None:
    image = with_racks(IMAGE, "a", "b")
    view = TopicView(image)
    moved = image.with_topic(Topic("u", image.topics["u"].topic_id, {0: PartitionState((2,))}))
    assert view.changed(with_leader(image, 2)) is view
    after = view.changed(moved)
    assert after is not view
    assert after.hash_of(["u"]) != view.hash_of(["u"])
    assert after.hash_of(["t"]) == view.hash_of(["t"])


class Incomparable(tuple[int, ...]):
    """Replicas that must not be compared."""

    __slots__ = ()
    __hash__ = tuple.__hash__

    def __eq__(self, other: object) -> bool:
        raise AssertionError("replicas were compared")

    __ne__ = __eq__


def test_a_changed_leader_does_not_compare_the_replicas_of_other_partitions() -> None:
    topic_id = IMAGE.topics["t"].topic_id
    states = {0: PartitionState((1,)), 1: PartitionState(Incomparable((1,)))}
    image = with_racks(IMAGE, "a").with_topic(Topic("t", topic_id, states))
    view = TopicView(image)
    elected = replace(states[0], leader=1, leader_epoch=7)
    assert view.changed(image.with_topic(Topic("t", topic_id, {**states, 0: elected}))) is view


def test_the_hash_covers_existing_topics_only() -> None:
    view = TopicView(IMAGE)
    assert view.hash_of([]) == view.hash_of(["gone"]) == 0
    assert view.hash_of(["t", "gone"]) == view.hash_of(["t"]) != view.hash_of(["u"])
    assert view.hash_of(["t", "u"]) == view.hash_of(["u", "t"])
    assert -(2**63) <= view.hash_of(["t"]) < 2**63


def test_the_names_stay_the_same_object_while_no_topic_comes_or_goes() -> None:
    view = TopicView(IMAGE)
    assert view.changed(IMAGE.with_topic(topic("t", 3))).names_of_topics is view.names_of_topics
    assert view.changed(IMAGE.with_topic(topic("v", 3))).names_of_topics is not view.names_of_topics
