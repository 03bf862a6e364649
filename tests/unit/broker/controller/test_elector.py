"""The election of the controller and its reactions, in virtual time, with several brokers of one process on one
metadata tree.
"""

from contextlib import asynccontextmanager

import pytest
from tests.support.hosts import host_of
from tests.support.shared_tree import SharedTree
from tests.support.virtual_time import run_virtually

from oncelog_broker.controller.alter_partition import Member, Proposal
from oncelog_broker.controller.balancing import balance_leaders
from oncelog_broker.controller.configs import ConfigController
from oncelog_broker.controller.elector import RETRY_SECONDS, Elector
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership.registration import register_broker
from oncelog_broker.metadata.model import reader
from oncelog_broker.metadata.model.payloads import BrokerRegistration, Endpoint
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.errors import ErrorCode, KafkaError


class Cluster:
    """Brokers that elect their controller."""

    def __init__(self):
        self.shared = SharedTree()
        self.admin = self.shared.connect()
        self.tasks = Tasks()
        self.sessions, self.electors = {}, {}

    async def start(self, *brokers, on_term=None, unclean=False):
        for broker in brokers:
            self.sessions[broker] = self.shared.connect()
            await self.register(broker)
            elector = Elector(self.sessions[broker], broker, host_of(tasks=self.tasks), unclean)
            self.electors[broker] = elector
            if on_term is not None:
                elector.topics.finish_deletions = on_term
            await elector.start()

    async def register(self, broker):
        endpoints = (Endpoint("PLAINTEXT", "h", broker),)
        await register_broker(self.sessions[broker], broker, BrokerRegistration(endpoints))

    def controllers(self):
        return [broker for broker, elector in self.electors.items() if elector._term is not None]

    def topics(self, broker):
        return self.electors[broker].topics

    async def until(self, condition):
        """Let virtual time pass until a condition is true."""
        import asyncio

        for _ in range(1000):
            if await condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never came")

    async def state(self, topic="t", partition=0):
        found = (await reader.read_image(self.admin)).topics[topic].partitions[partition]
        return found.leader, found.leader_epoch, found.isr


async def _no_pause():
    return


@asynccontextmanager
async def running(*brokers):
    cluster = Cluster()
    try:
        await cluster.start(*brokers)
        yield cluster
    finally:
        for elector in cluster.electors.values():
            elector.close()
        await cluster.tasks.close()


def virtually(scenario):
    """Turn the scenario into a test that runs in virtual time."""

    def test():
        run_virtually(scenario())

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


@virtually
async def test_the_first_broker_is_controller_and_the_others_wait():
    async with running(1, 2, 3) as cluster:
        assert cluster.controllers() == [1]
        with pytest.raises(KafkaError) as raised:
            await cluster.topics(2).create_topic("t", 1, 1)
        assert raised.value.code is ErrorCode.NOT_CONTROLLER


@virtually
async def test_a_term_ends_with_its_epoch_though_the_registration_stays_ours():
    """The reply to a claim of the controller role was lost, and the claim raised the controller epoch after this broker
    had read the epoch. The broker then became controller with an outdated epoch and could write nothing.
    """
    async with running(1, 2) as cluster:
        await cluster.topics(1).create_topic("t", 1, 1)
        ((data, stat),) = await cluster.admin.get_many([paths.CONTROLLER_EPOCH])
        await cluster.admin.set(paths.CONTROLLER_EPOCH, data, stat.version)

        async def may_write_again():
            try:
                await cluster.topics(1).create_topic("u", 1, 1)
            except KafkaError as error:
                assert error.code is ErrorCode.NOT_CONTROLLER
                return False
            return True

        await cluster.until(may_write_again)
        assert cluster.controllers() == [1]


@virtually
async def test_a_controller_repeats_its_first_steps_after_a_failure_of_the_store():
    async with running() as cluster:
        begun = []

        async def begin(term):
            begun.append(term)
            if len(begun) == 1:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

        await cluster.start(1, on_term=begin)

        async def is_begun_twice():
            return len(begun) == 2

        await cluster.until(is_begun_twice)
        assert begun[0] is begun[1]


@virtually
async def test_a_successor_of_a_dead_controller_takes_the_next_epoch_and_elects():
    async with running(1, 2, 3) as cluster:
        await cluster.topics(1).create_topic("t", -1, -1, assignment={0: [1, 2, 3]})
        cluster.sessions[1].expire()

        async def taken_over():
            return (await cluster.state())[0] in (2, 3)

        await cluster.until(taken_over)
        (controller,) = (broker for broker in cluster.controllers() if broker != 1)
        assert cluster.electors[controller].term().controllership.epoch == 2
        assert await cluster.state() == (2, 1, (2, 3))


@virtually
async def test_the_controller_notices_the_death_of_another_broker():
    async with running(1, 2, 3) as cluster:
        await cluster.topics(1).create_topic("t", -1, -1, assignment={0: [3, 1]})
        cluster.sessions[3].expire()

        async def moved():
            return await cluster.state() == (1, 1, (1,))

        await cluster.until(moved)


@virtually
async def test_a_controller_whose_session_is_over_resigns_and_comes_back_when_it_is_registered_anew():
    async with running(1) as cluster:
        cluster.sessions[1].expire()
        cluster.sessions[1].notice()
        assert cluster.controllers() == []
        with pytest.raises(KafkaError):
            cluster.electors[1].term()
        cluster.electors[1].close()
        await cluster.start(1)
        assert cluster.controllers() == [1]


@virtually
async def test_an_unregistered_broker_does_not_claim_the_controller_role():
    async with running(1, 2) as cluster:
        await cluster.admin.delete(paths.broker_id(2))
        cluster.sessions[1].expire()
        await cluster.register(2)

        async def is_controller():
            return 2 in cluster.controllers()

        await cluster.until(is_controller)
        assert await reader.read_controller(cluster.admin) == 2


@virtually
async def test_a_claim_whose_reply_was_lost_is_ours_and_is_not_made_twice():
    async with running(1, 2) as cluster:
        cluster.sessions[2].lose_replies = 1
        cluster.sessions[1].expire()

        async def is_controller():
            return 2 in cluster.controllers()

        await cluster.until(is_controller)
        assert (await cluster.admin.get(paths.CONTROLLER_EPOCH))[0] == b"2"


@virtually
async def test_the_controller_reads_everything_again_after_an_outage_of_the_store():
    async with running(1, 2, 3) as cluster:
        await cluster.topics(1).create_topic("t", -1, -1, assignment={0: [3, 1]})
        cluster.sessions[1].is_cut = True
        cluster.sessions[3].expire()
        await cluster.until(_after(2 * RETRY_SECONDS))
        assert await cluster.state() == (3, 0, (3, 1))
        cluster.sessions[1].reconnect()

        async def moved():
            return await cluster.state() == (1, 1, (1,))

        await cluster.until(moved)
        assert cluster.electors[1].term().controllership.epoch == 1


@virtually
async def test_a_controller_that_lost_its_registration_while_cut_off_resigns_on_reconnect():
    async with running(1, 2) as cluster:
        cluster.sessions[1].is_cut = True
        await cluster.admin.delete(paths.CONTROLLER)

        async def taken_over():
            return 2 in cluster.controllers()

        await cluster.until(taken_over)
        cluster.sessions[1].reconnect()

        async def resigned():
            return cluster.controllers() == [2]

        await cluster.until(resigned)


def _after(seconds):
    import asyncio

    loop = asyncio.get_running_loop()
    end = loop.time() + seconds

    async def passed():
        return loop.time() >= end

    return passed


@virtually
async def test_a_controller_that_resigns_is_replaced_at_once_and_does_not_claim_again():
    async with running(1, 2) as cluster:
        await cluster.electors[1].give_up()
        with pytest.raises(KafkaError) as raised:
            cluster.electors[1].term()
        assert raised.value.code is ErrorCode.NOT_CONTROLLER

        async def is_controller():
            return cluster.controllers() == [2]

        await cluster.until(is_controller)
        await cluster.electors[1].give_up()
        cluster.sessions[2].expire()
        await cluster.until(_after(3 * RETRY_SECONDS))
        assert 1 not in cluster.controllers(), "it is about to stop"


@virtually
async def test_resigning_without_the_store_is_left_to_the_end_of_the_session():
    async with running(1) as cluster:
        cluster.sessions[1].is_cut = True
        await cluster.electors[1].give_up()
        assert cluster.controllers() == []


@virtually
async def test_preferred_leaders_are_elected_by_the_controller_alone_and_in_its_own_time():
    async with running(1, 2) as cluster:
        topic = await cluster.topics(1).create_topic("t", -1, -1, assignment={0: [2, 1]})
        term = cluster.electors[1].term()
        members = [Member(1), Member(2)]
        given = Proposal(2, 0, 0, members[:1])
        await term.alter(2, term.view.brokers[2].epoch, [(topic.topic_id, 0, given)])
        joined = Proposal(1, 1, 1, members)
        await term.alter(1, term.view.brokers[1].epoch, [(topic.topic_id, 0, joined)])
        assert await cluster.state() == (1, 1, (1, 2))
        await balance_leaders(cluster.electors[2].term, 10)
        assert await cluster.state() == (1, 1, (1, 2))
        await balance_leaders(cluster.electors[1].term, 10)
        assert await cluster.state() == (2, 2, (1, 2))


@virtually
async def test_a_controller_repeats_its_first_steps_also_if_another_request_read_the_view_first():
    """A leader's request may arrive while the controller pauses after a failure of the metadata store."""
    async with running() as cluster:
        begun = []

        async def begin(term):
            begun.append(term)

        await cluster.start(1, on_term=begin)
        term = cluster.electors[1].term()
        cluster.sessions[1].is_cut = True
        term.distrust()
        await cluster.until(_after(RETRY_SECONDS / 4))
        cluster.sessions[1].reconnect()
        await term.current_view()
        assert not term.must_read_all

        async def is_begun_twice():
            return len(begun) == 2

        await cluster.until(is_begun_twice)
        await cluster.until(_after(3 * RETRY_SECONDS))
        assert len(begun) == 2


async def _without_a_leader(cluster, *brokers):
    """Create a topic whose only in-sync replica, the last of these brokers, has died."""
    topic = await cluster.topics(1).create_topic("t", -1, -1, assignment={0: [brokers[-1], *brokers[:-1]]})
    term = cluster.electors[1].term()
    alone = Proposal(brokers[-1], 0, 0, [Member(brokers[-1])])
    await term.alter(brokers[-1], term.view.brokers[brokers[-1]].epoch, [(topic.topic_id, 0, alone)])
    cluster.electors.pop(brokers[-1]).close()
    cluster.sessions[brokers[-1]].expire()


@pytest.mark.parametrize("broker", [None, 1])
def test_the_controller_follows_the_cluster_default_of_unclean_elections(broker):
    async def scenario():
        async with running(1, 2) as cluster:
            await _without_a_leader(cluster, 1, 2)
            allowed = {"unclean.leader.election.enable": "true"}
            await cluster.until(_after(RETRY_SECONDS))
            assert await cluster.state() == (-1, 1, (2,))
            await ConfigController(cluster.admin).alter_broker_config(broker, lambda _: allowed)

            async def elected():
                return await cluster.state() == (1, 2, (1,))

            await cluster.until(elected)

    run_virtually(scenario())


@virtually
async def test_the_first_election_of_a_broker_knows_what_its_cluster_allows_by_default():
    """The broker has no cluster image yet when it becomes controller."""
    async with running(1, 2) as cluster:
        await _without_a_leader(cluster, 1, 2)
        forbidden = {"unclean.leader.election.enable": "false"}
        await ConfigController(cluster.admin).alter_broker_config(None, lambda _: forbidden)
        cluster.electors.pop(1).close()
        cluster.sessions[1].expire()
        await cluster.start(1, unclean=True)
        assert await cluster.state() == (-1, 1, (2,))
