"""The conditions under which a broker may lead partitions, tested without a network on a metadata store whose responses
the test chooses.
"""

import asyncio

import pytest
from tests.support.hosts import host_of

from oncelog_broker.metadata.membership.membership import ClusterMember
from oncelog_broker.metadata.membership.registration import Membership, WrongStore
from oncelog_broker.metadata.stores.store import BadVersion, ConnectionLost, SessionState
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.tasks import Tasks


class Store:
    session_timeout = 10.0

    def __init__(self):
        self.session, self.session_id, self.lease_until = SessionState.CONNECTED, 1, 9.0
        self._callback = None

    def watch_session(self, callback):
        self._callback = callback

    def tell(self, state):
        self.session = state
        self._callback(state)

    def begin_session(self):
        self.session_id += 1
        self.tell(SessionState.CONNECTED)


class Place:
    """A member with all functions that it calls; a test may delay each of these functions."""

    def __init__(self, tasks, *, is_strict=True):
        self.store, self.clock = Store(), ManualClock()
        self.calls, self.failures = [], []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.member = ClusterMember(self.store, self._register, host_of(self.clock, tasks), is_strict=is_strict)

    async def on_resumed(self):
        await self._call("resumed")

    async def on_rejoined(self, membership):
        await self._call(f"rejoined with {membership.broker_epoch}")

    async def _register(self):
        await self._call("register")
        return Membership("c", 100 + self.store.session_id, 0, False)

    async def _call(self, name):
        await self.go_on.wait()
        self.calls.append(name)
        if self.failures:
            raise self.failures.pop()

    async def until(self, is_so):
        async with asyncio.timeout(30):
            while not is_so():  # noqa: ASYNC110  the gate is asked, it tells nobody
                await asyncio.sleep(0.001)


@pytest.fixture
async def tasks():
    made = Tasks()
    yield made
    await made.close()


@pytest.fixture
async def place(tasks):
    made = Place(tasks)
    await made.member.join()
    made.member.follow(made)
    made.calls.clear()
    return made


async def test_the_gate_is_shut_until_the_broker_has_seen_the_cluster(tasks):
    place = Place(tasks)
    assert not place.member.may_lead()
    await place.member.join()
    assert not place.member.may_lead()
    place.member.follow(place)
    assert place.member.may_lead()
    assert place.member.broker_epoch == 101


async def test_the_lease_is_compared_when_it_is_asked_for(place):
    """A process that was paused continues before it receives any notification."""
    place.clock.advance_ms(8_999)
    assert place.member.may_lead()
    place.clock.advance_ms(1)
    assert not place.member.may_lead()
    place.store.lease_until = 18.0
    assert place.member.may_lead()


async def test_a_gate_that_is_shut_for_a_moment_is_waited_for(place):
    """The broker is stopped while it does not serve clients, although it may lead the only in-sync replica of a
    partition.
    """
    place.clock.advance_ms(9_000)
    waiting = asyncio.ensure_future(place.member.is_back(2.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    place.store.lease_until = 20.0
    assert await waiting


async def test_a_gate_that_stays_shut_is_not_waited_for_longer_than_that(place):
    place.clock.advance_ms(9_000)
    waiting = asyncio.ensure_future(place.member.is_back(2.0))
    await asyncio.sleep(0)
    place.clock.advance_ms(2_000)
    assert not await waiting


async def test_the_same_session_opens_the_gate_when_the_cluster_was_read_again(place):
    place.store.tell(SessionState.IN_DOUBT)
    assert not place.member.may_lead()
    place.go_on.clear()
    place.store.tell(SessionState.CONNECTED)
    await asyncio.sleep(0)
    assert not place.member.may_lead()
    place.go_on.set()
    await place.until(place.member.may_lead)
    assert place.calls == ["resumed"]
    assert place.member.broker_epoch == 101


async def test_a_lost_session_opens_the_gate_when_the_broker_is_registered_anew(place):
    place.store.tell(SessionState.IN_DOUBT)
    place.store.tell(SessionState.LOST)
    place.go_on.clear()
    place.store.begin_session()
    await asyncio.sleep(0)
    assert not place.member.may_lead()
    place.go_on.set()
    await place.until(place.member.may_lead)
    assert place.calls == ["register", "rejoined with 102"]
    assert place.member.broker_epoch == 102


async def test_a_failed_step_of_the_re_registration_is_retried(place, monkeypatch):
    monkeypatch.setattr("oncelog_broker.metadata.membership.membership.RETRY_SECONDS", 0.001)
    place.failures = [RuntimeError("nobody thought of it"), BadVersion("/a", 1), ConnectionLost("", "gone")]
    place.store.tell(SessionState.LOST)
    place.store.begin_session()
    await place.until(place.member.may_lead)
    assert place.calls[-1] == "rejoined with 102"


async def test_the_gate_stays_shut_until_the_broker_sees_its_new_registration(place, monkeypatch):
    """The metadata store session may be interrupted several times. Any leadership that is based on older partition
    states must have ended by then.
    """
    monkeypatch.setattr("oncelog_broker.metadata.membership.membership.RETRY_SECONDS", 0.001)
    fails = asyncio.Event()

    async def rejoined(membership):
        if not fails.is_set():
            fails.set()
            raise ConnectionLost("", "gone")
        await place._call(f"rejoined with {membership.broker_epoch}")

    place.on_rejoined = rejoined
    place.store.tell(SessionState.LOST)
    place.store.begin_session()
    await place.until(place.member.may_lead)
    assert place.calls == ["register", "rejoined with 102"]
    place.store.tell(SessionState.IN_DOUBT)
    place.store.tell(SessionState.CONNECTED)
    await place.until(place.member.may_lead)
    assert place.calls[-1] == "resumed"


async def test_a_session_that_ends_on_the_way_back_opens_nothing(place):
    place.store.tell(SessionState.LOST)
    place.go_on.clear()
    place.store.begin_session()
    await asyncio.sleep(0)
    place.store.tell(SessionState.LOST)
    place.go_on.set()
    await asyncio.sleep(0.01)
    assert not place.member.may_lead()
    assert place.calls == []
    place.store.begin_session()
    await place.until(place.member.may_lead)
    assert place.calls == ["register", "rejoined with 103"]


async def test_a_session_that_ended_before_the_broker_followed_is_noticed(tasks):
    place = Place(tasks)
    await place.member.join()
    place.store.session_id = 2
    place.member.follow(place)
    assert not place.member.may_lead()
    await place.until(place.member.may_lead)
    assert place.member.broker_epoch == 102


async def test_an_advisory_gate_shuts_only_with_the_session(tasks):
    place = Place(tasks, is_strict=False)
    await place.member.join()
    place.member.follow(place)
    place.clock.advance_ms(60_000)
    for state in (SessionState.IN_DOUBT, SessionState.CONNECTED, SessionState.IN_DOUBT):
        place.store.tell(state)
        assert place.member.may_lead()
    place.store.tell(SessionState.LOST)
    assert not place.member.may_lead()
    place.store.begin_session()
    await place.until(place.member.may_lead)


async def test_a_first_registration_is_tried_for_as_long_as_a_session_lasts(tasks, monkeypatch):
    monkeypatch.setattr("oncelog_broker.metadata.membership.membership.RETRY_SECONDS", 0.001)
    place = Place(tasks)
    place.failures = [ConnectionLost("", "gone")] * 3
    assert (await place.member.join()).broker_epoch == 101
    place.failures = [ConnectionLost("", "gone")] * 2
    place.store.session_timeout = 0.0
    with pytest.raises(ConnectionLost):
        await place.member.join()


async def test_s74_a_store_that_came_back_as_another_one_is_said_once_and_waited_for(place, caplog):
    place.failures = [WrongStore("", "the store is empty")] * 3
    place.store.tell(SessionState.LOST)
    place.store.begin_session()
    await place.until(place.member.may_lead)
    assert place.calls.count("register") == 4
    assert caplog.text.count("this broker serves no requests until its metadata store is back: the store is empty") == 1
    assert place.member.wrong_store == ""


async def test_a_store_that_came_back_as_another_one_is_known_until_this_broker_has_registered_again(place):
    place.failures = [WrongStore("", "the store is empty")] * 2
    place.go_on.clear()
    place.store.tell(SessionState.LOST)
    place.store.begin_session()
    assert place.member.wrong_store == ""
    place.go_on.set()
    await place.until(lambda: place.member.wrong_store == "the store is empty")
    assert not place.member.may_lead()
    await place.until(place.member.may_lead)
    assert place.member.wrong_store == ""
