"""A stopping broker requests new leaders, waits for partitions that can get one, and does not wait for the others."""

import asyncio

import pytest
from tests.support.virtual_time import run_virtually

from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.image import NO_CONTROLLER, Broker, ClusterImage, PartitionState, Topic
from oncelog_broker.replication.peers import PeerUnavailable
from oncelog_broker.upkeep.controlled_shutdown import ControlledShutdown, Patience, is_worth_asking, leads_only
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.controlled_shutdown import ControlledShutdownResponse

BACKOFF = 5.0


def image(leader=1, isr=(1, 2), brokers=(1, 2), controller=2):
    return ClusterImage(
        "c",
        brokers={id_: Broker(id_, 10 * id_, ()) for id_ in brokers},
        topics={"t": Topic("t", b"i" * 16, {0: PartitionState((1, 2), isr, leader, 4, 7)})},
        controller_id=controller,
    )


def answer(*remaining, error=ErrorCode.NONE):
    partition = ControlledShutdownResponse.RemainingPartition
    return ControlledShutdownResponse(
        error_code=error,
        remaining_partitions=[partition(topic_name=name, partition_index=index) for name, index in remaining],
    )


class Controller:
    """A controller that returns the prepared responses in order; a new cluster image may arrive a moment after each
    response.
    """

    def __init__(self, first, *answers):
        self.metadata = MetadataCache(None, first)
        self.answers = list(answers)
        self.asked = []

    async def ask(self, request):
        loop = asyncio.get_running_loop()
        self.asked.append((loop.time(), request.broker_id, request.broker_epoch))
        outcome, *images = self.answers.pop(0)
        for number, later in enumerate(images, 1):
            loop.call_later(number, self.metadata._publish, later)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def depart(self):
        """Run the controlled shutdown. Returns whether all partitions were moved, and the seconds that the shutdown
        took.
        """

        async def prepare():
            loop = asyncio.get_running_loop()
            began = loop.time()
            moved = await ControlledShutdown(1, self.metadata, self.ask, Patience(3, BACKOFF)).prepare()
            return moved, loop.time() - began

        return run_virtually(prepare())


LEFT = ("t", 0)


def test_the_controlled_shutdown_ends_when_the_image_shows_the_new_leaders():
    controller = Controller(image(), (answer(), image(leader=2, isr=(2,))))
    assert controller.depart() == (True, pytest.approx(1))
    assert [asked[1:] for asked in controller.asked] == [(1, 10)]


def test_a_broker_alone_asks_no_controller_at_its_shutdown():
    controller = Controller(image(brokers=(1,)))
    assert controller.depart() == (False, 0)
    assert controller.asked == []


def test_the_stopping_broker_asks_again_when_another_replica_is_in_sync():
    controller = Controller(image(isr=(1,)), (answer(LEFT), image()), (answer(), image(leader=2, isr=(2,))))
    assert controller.depart() == (True, pytest.approx(2))


def test_the_stopping_broker_does_not_wait_for_dead_replicas():
    controller = Controller(image(), (answer(LEFT), image(brokers=(1,))))
    assert controller.depart() == (False, pytest.approx(1))
    assert len(controller.asked) == 1


def test_the_controlled_shutdown_ends_after_its_timeout():
    controller = Controller(image(isr=(1,)), *[(answer(LEFT),)] * 3)
    assert controller.depart() == (False, pytest.approx(2 * BACKOFF))


@pytest.mark.parametrize("failure", [PeerUnavailable(2, "gone"), answer(error=ErrorCode.NOT_CONTROLLER)])
def test_the_stopping_broker_asks_the_next_controller(failure):
    without = image(controller=NO_CONTROLLER, brokers=(1, 2, 3))
    controller = Controller(
        image(brokers=(1, 2, 3)),
        (failure, without, image(controller=3, brokers=(1, 2, 3))),
        (answer(), image(leader=2, isr=(2,), controller=3)),
    )
    assert controller.depart() == (True, pytest.approx(3))


def test_the_stopping_broker_waits_for_the_first_controller():
    controller = Controller(image(controller=NO_CONTROLLER), (answer(), image(leader=2, isr=(2,))))
    assert controller.depart() == (True, pytest.approx(BACKOFF + 1))


def test_a_partition_without_other_replicas_does_not_delay_the_shutdown():
    alone = Topic("alone", b"a" * 16, {0: PartitionState((1,), (1,), 1, 4, 7)})
    assert leads_only(image(leader=2).with_topic(alone), 1, [])
    assert not leads_only(image(), 1, [])
    assert leads_only(image(), 1, [LEFT])


def test_an_unchanged_situation_causes_no_further_request():
    before = image()
    assert not is_worth_asking(before, 1, [LEFT], before)
    assert not is_worth_asking(before, 1, None, image(isr=(1,)))
    assert is_worth_asking(before, 1, [LEFT], image(controller=3))
