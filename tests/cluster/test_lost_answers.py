"""Tests lost responses of ZooKeeper to the controller's writes: the writes are done, but the controller cannot know
that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from final_state import settle_and_check
from recording_clients import PRODUCERS, Writer
from replicated_cluster import ReplicatedCluster
from tests.support.zookeeper.cutting_proxy import CuttingProxy, Direction, Moment
from tests.support.zookeeper.frames import Op

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

SETTINGS = {"zookeeper.session.timeout.ms": "4000"}
"""A session timeout that is long enough for all live brokers to keep their sessions, because this test counts
elections.
"""


@pytest.fixture(scope="module")
def proxied(
    chroots: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ReplicatedCluster, CuttingProxy]]:
    with CuttingProxy(chroots()) as proxy:
        directory = tmp_path_factory.mktemp("proxied")
        with ReplicatedCluster(directory, proxy.connect_string, SETTINGS) as cluster:
            yield cluster, proxy
        cluster.check_logs()


def lose_the_next_answer(proxy: CuttingProxy) -> None:
    """Lose the response to the next multi request (several writes in one) of any broker; the connection ends, too."""
    proxy.forget_cuts()
    proxy.cut_when(lambda frame: frame.op == Op.MULTI, Moment.BEFORE, direction=Direction.ANSWERS)


@pytest.mark.timeout(240)
def test_c11_answers_about_the_controllers_writes_are_lost(
    proxied: tuple[ReplicatedCluster, CuttingProxy], history: History, topic: str
) -> None:
    """The responses about the creation of a topic, an election, an ISR change, a controller claim, and a deletion are
    lost. Each change is made once, nothing stays incomplete, and leader epochs increase by one.
    """
    cluster, proxy = proxied
    place = Place(topic)

    lose_the_next_answer(proxy)
    cluster.create_topic(topic, (1, 2, 3))
    assert cluster.part(topic).epoch == 0

    with PRODUCERS["oncelog"](cluster.addresses, history, "anna") as producer:
        with Writer(producer, place) as writer:
            writer.until_more(5)
            before = cluster.until_led(topic)
            controller = cluster.controller()
            lose_the_next_answer(proxy)
            # the write is an election, or a controller claim if this broker was the controller
            cluster.kill(before.leader)
            after = cluster.until_led(topic, but_by=before.leader)
            assert after.epoch == before.epoch + 1
            writer.until_more(5)

            lose_the_next_answer(proxy)
            cluster.start(before.leader)  # the next writes are that the broker registers, and that it joins the ISR
            cluster.until_whole(topic)
            lose_the_next_answer(proxy)
            follower = next(node_id for node_id in (1, 2, 3) if node_id != after.leader)
            cluster.kill(follower)
            cluster.until(lambda: follower not in cluster.part(topic).isr, "it has left the ISR")
            writer.until_more(5)
            lose_the_next_answer(proxy)
            cluster.start(follower)
            cluster.until_whole(topic)

            controller = cluster.controller()
            lose_the_next_answer(proxy)
            cluster.kill(controller)
            cluster.until(lambda: cluster.metadata().controller_id not in (-1, controller), "another controls")
            cluster.until_led(topic, but_by=controller)
            writer.until_more(5)
        assert producer.acknowledged == producer.sent
    proxy.forget_cuts()
    settle_and_check(cluster, history, topic)

    lose_the_next_answer(proxy)
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000)
    done = {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    def is_deleted() -> bool:
        """Repeat the request while the outcome is unknown, as clients do, because the lost response may belong to
        another request.
        """
        answer = cluster.ask(request, ApiKey.DELETE_TOPICS, 4, cluster.controller())
        return {each.error_code for each in answer.responses} <= done

    cluster.until(is_deleted, "the deletion is answered")

    def is_gone() -> bool:
        (found,) = cluster.metadata(topic).topics
        return bool(found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    cluster.until(is_gone, "the topic is deleted")
