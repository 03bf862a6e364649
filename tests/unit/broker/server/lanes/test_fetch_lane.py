"""Which Fetch requests take the fast code path (the fetch lane), and which of these the general Fetch handler must
complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from tests.support.producers import ABORT, sequenced
from tests.support.served import EPOCH, FOLLOWER, LEADER, TOPIC, Client, Coordinator, Served, produce
from tests.support.storage import make_batch

from oncelog.fail_points import point
from oncelog.fail_points.faults import Faults
from oncelog.fail_points.specification import Action, Kind
from oncelog_broker.metadata.model.image import Broker, ClusterImage
from oncelog_broker.security.authorizer.authorizer import StandardAuthorizer
from oncelog_broker.server.dispatch.dispatcher import LANES_PER_API, Dispatcher
from oncelog_broker.server.lanes import fetch as lane_of_fetch
from oncelog_broker.server.lanes import fetch_answers
from oncelog_broker.server.lanes.fetch import MAX_KNOWN, MIN_VERSION, FetchLane
from oncelog_broker.server.lanes.one_fetch import OneFetch
from oncelog_broker.server.lanes.repeated import MAX_FAILED_ATTEMPTS
from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.records.control import EndTransactionMarker
from oncelog_protocol.templates import changing

UNKNOWN_TAG = b"\x01\x63\x01\x00"
"""Tagged fields of a message: one field of one byte with tag 99, which the broker does not know."""
VERSIONS = SERVED[ApiKey.FETCH].versions
TOPIC_ID = bytes(16)
BOTH = (LEADER, FOLLOWER)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path, partitions=3)
    for partition in made.partitions:
        partition.lead(0, (LEADER,))
    yield made
    made.leave()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record for each request that reached a lane whether the lane handled it."""
    found: list[bool] = []
    serve = FetchLane.serve

    def noted(self: FetchLane, *arguments: Any) -> bool:
        found.append(serve(self, *arguments))
        return found[-1]

    monkeypatch.setattr(FetchLane, "serve", noted)
    return found


@pytest.fixture
def read_again(monkeypatch: pytest.MonkeyPatch) -> list[OneFetch]:
    """Record the requests that took the lane but whose records the general handler then read."""
    found: list[OneFetch] = []
    usual = OneFetch._read_in_the_usual_way

    def noted(self: OneFetch) -> None:
        found.append(self)
        usual(self)

    monkeypatch.setattr(OneFetch, "_read_in_the_usual_way", noted)
    return found


def fetch(
    *offsets: int,
    index: int = 0,
    session: tuple[int, int] = (0, -1),
    wait_ms: int = 0,
    follower: int | None = None,
    topic: str = TOPIC,
    isolation_level: int = 0,
    rack: str = "",
) -> FetchRequest:
    """Return a Fetch request for the partitions from `index` on; `session` is (session id, session epoch)."""
    wanted = [
        FetchRequest.FetchTopic.FetchPartition(
            partition=index + number,
            current_leader_epoch=0,
            fetch_offset=offset,
            log_start_offset=-1 if follower is None else 0,
            partition_max_bytes=1 << 20,
        )
        for number, offset in enumerate(offsets)
    ]
    topics = [FetchRequest.FetchTopic(topic=topic, topic_id=TOPIC_ID, partitions=wanted)] if wanted else []
    state = FetchRequest.ReplicaState
    return FetchRequest(
        replica_state=None if follower is None else state(replica_id=follower, replica_epoch=EPOCH),
        max_wait_ms=wait_ms,
        min_bytes=1,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
        rack_id=rack,
    )


async def waiting_client(served: Served, *, session: bool = False) -> tuple[Client, int, int]:
    """Return a client whose request waits in the lane, its session id, and the session's next epoch; the session has
    three partitions.
    """
    client, session_id = Client(served), 0
    if session:
        session_id = (await ask(client, fetch(0, 0, 0, session=(0, 0)))).session_id
    for number in range(1, 5):
        asked = fetch(session=(session_id, number), wait_ms=500) if session else fetch(0, wait_ms=500)
        count = len(client.answers())
        client.send(asked, api=ApiKey.FETCH, version=17)
        for _ in range(3):
            await asyncio.sleep(0)
        if number < 4:
            served.deadlines.fire()
            await client.answered(count + 1)
    return client, session_id, 5


async def ask(client: Client, request: FetchRequest, version: int = 17) -> Any:
    count = len(client.answers())
    client.send(request, api=ApiKey.FETCH, version=version)
    return (await client.answered(count + 1))[count][1]


def records_of(response: Any) -> list[tuple[int, int]]:
    """Return (partition, bytes of records) in the order of the response."""
    return [(each.partition_index, len(each.records)) for topic in response.responses for each in topic.partitions]


def write(served: Served, index: int = 0, *, acks: int = 1) -> int:
    batch = bytes(make_batch())
    Client(served).send(produce(batch, acks=acks, index=index))
    return len(batch)


@pytest.mark.parametrize("version", range(VERSIONS.low, VERSIONS.high + 1))
async def test_a_repeated_request_takes_the_lane_the_next_time(served: Served, taken: list[bool], version: int) -> None:
    sizes = [write(served) for _ in range(5)]
    client = Client(served)
    for offset in range(5):
        assert records_of(await ask(client, fetch(offset), version)) == [(0, sum(sizes[offset:]))]
    in_lane = version >= MIN_VERSION
    assert taken == [False, in_lane, in_lane], "the second request made the lane, the third one was remembered"


async def test_a_session_takes_the_lane_and_its_empty_answer_comes_from_there(
    served: Served, taken: list[bool]
) -> None:
    client = Client(served)
    session = (await ask(client, fetch(0, 0, 0, session=(0, 0)))).session_id
    for epoch in range(1, 4):
        assert (await ask(client, fetch(session=(session, epoch)))).responses == []
    size = write(served, 1)
    assert records_of(await ask(client, fetch(session=(session, 4)))) == [(1, size)]
    assert taken[-2:] == [True, True]


async def test_a_fetch_that_waits_in_the_lane_is_woken_by_an_append_and_by_its_deadline(
    served: Served, taken: list[bool]
) -> None:
    client, _, _ = await waiting_client(served)
    assert taken[-1]
    assert len(served.partitions[0].purgatory.fetches) == 1
    count = len(client.answers())
    size = write(served)
    assert records_of((await client.answered(count + 1))[count][1]) == [(0, size)]
    client.send(fetch(1, wait_ms=500), api=ApiKey.FETCH, version=17)
    assert taken[-1]
    served.deadlines.fire()
    assert records_of((await client.answered(count + 2))[count + 1][1]) == [(0, 0)]
    assert not served.partitions[0].purgatory.fetches


async def test_a_follower_takes_the_lane_and_its_offset_commits(served: Served, taken: list[bool]) -> None:
    for partition in served.partitions:
        partition.lead(0, BOTH, BOTH)
    client = Client(served)
    session = (await ask(client, fetch(0, 0, 0, session=(0, 0), follower=FOLLOWER))).session_id
    for epoch in range(1, 3):
        await ask(client, fetch(session=(session, epoch), follower=FOLLOWER))
    for offset in range(3):
        size = write(served)
        await ask(client, fetch(session=(session, epoch + 1 + 2 * offset), follower=FOLLOWER))
        answer = await ask(client, fetch(offset + 1, session=(session, epoch + 2 + 2 * offset), follower=FOLLOWER))
        assert records_of(answer) == [(0, 0)], "the high watermark is news"
        assert served.partitions[0].high_watermark == offset + 1
        assert size
    assert taken[-3:] == [True, True, True]


async def test_a_follower_of_another_incarnation_is_left_to_the_usual_way(served: Served, taken: list[bool]) -> None:
    for partition in served.partitions:
        partition.lead(0, BOTH, BOTH)
    client = Client(served)
    session = (await ask(client, fetch(0, session=(0, 0), follower=FOLLOWER))).session_id
    for epoch in range(1, 5):
        await ask(client, fetch(session=(session, epoch), follower=FOLLOWER))
    assert taken[-1]
    served.services.image = ClusterImage("", {FOLLOWER: Broker(FOLLOWER, EPOCH + 1, ())})
    await ask(client, fetch(session=(session, 5), follower=FOLLOWER))
    assert not taken[-1]


async def test_a_fetch_with_records_in_two_partitions_takes_the_usual_way(
    served: Served, read_again: list[OneFetch]
) -> None:
    client, session, epoch = await waiting_client(served, session=True)
    sizes = write(served, 0), write(served, 2)
    assert records_of((await client.answered(5))[4][1]) == [(0, sizes[0]), (2, sizes[1])]
    assert len(read_again) == 1
    answer = await ask(client, fetch(session=(session, epoch), wait_ms=500))
    assert records_of(answer) == [(0, sizes[0]), (2, sizes[1])], "asked for again, from where it was"
    assert len(read_again) == 2


async def test_aborted_transactions_are_told_in_the_usual_way(served: Served, read_again: list[OneFetch]) -> None:
    served.services.transactions = Coordinator()
    client, partition = Client(served), served.partitions[0]
    for _ in range(3):
        await ask(client, fetch(0, isolation_level=1))
    batch = bytes(sequenced(7, 0, transactional=True))
    Client(served).send(produce(batch, acks=1, transactional_id="txn"))
    partition.append_marker(EndTransactionMarker(ABORT, 0), producer_id=7, producer_epoch=0)
    answer = await ask(client, fetch(0, isolation_level=1))
    (aborted,) = answer.responses[0].partitions[0].aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (7, 0)
    assert len(read_again) == 1


async def test_a_partition_that_came_anew_under_the_same_name_is_read(
    served: Served, taken: list[bool], tmp_path: Path
) -> None:
    client, old = Client(served), served.partitions[0]
    for _ in range(4):
        await ask(client, fetch(0))
    assert taken[-1]
    old.resign()
    served.partitions[0] = new = Served(tmp_path / "new").partitions[0]
    new.lead(0, (LEADER,))
    size = write(served)
    for is_taken in (False, True):
        assert records_of(await ask(client, fetch(0))) == [(0, size)]
        assert taken[-1] is is_taken
    old.log.close()


async def test_a_lane_remembers_a_bounded_number_of_requests_and_answers(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_answers, "MAX_KEPT", 2)
    client = Client(served)
    for number in range(MAX_KNOWN + 10):
        await ask(client, fetch(0, wait_ms=-1 - number))
    for index in (0, 1, 2, 0, 1, 2):
        await ask(client, fetch(0, index=index, wait_ms=-3))
    (lane,) = client.connection.lanes.values()
    assert isinstance(lane, FetchLane)
    assert len(lane._known) == MAX_KNOWN
    assert len(lane._ways.answers._kept) == 2


async def test_a_session_with_too_many_partitions_is_left_to_the_usual_way(
    served: Served, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_of_fetch, "MAX_LOOKED_AT", 2)
    client = Client(served)
    session = (await ask(client, fetch(0, 0, 0, session=(0, 0)))).session_id
    for epoch in range(1, 6):
        await ask(client, fetch(session=(session, epoch)))
    assert not any(taken)


async def test_a_client_that_goes_leaves_no_waiting_fetch_behind(served: Served, taken: list[bool]) -> None:
    client, _, _ = await waiting_client(served)
    assert taken[-1]
    assert len(served.partitions[0].purgatory.fetches) == 1
    client.connection.connection_lost(None)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not served.partitions[0].purgatory.fetches


async def test_a_fetch_of_another_kind_is_served_while_a_test_has_set_a_fault(
    served: Served, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    armed = Faults([])
    monkeypatch.setattr(point, "ACTIVE_FAULTS", armed)
    served.dispatcher = Dispatcher(served.services)
    client = Client(served)
    for _ in range(4):
        await ask(client, fetch(0))
    assert taken[-1]
    armed.controlled.add("Produce.request", Action(Kind.DROP), times=1)
    client.send(fetch(0, isolation_level=1), api=ApiKey.FETCH, version=17)
    assert not client.wire.aborted, "the fault is for Produce"
    assert len(await client.answered(5)) == 5


async def test_a_lane_remembers_a_bounded_number_of_partitions_without_a_session(served: Served) -> None:
    """Without this bound, a client that fetches partitions that do not exist takes more than 10 MB of memory."""
    client = Client(served)
    for number in range(MAX_KNOWN):
        for index in range(MAX_KNOWN):
            client.send(fetch(0, index=index, topic=f"unknown-{number}"), api=ApiKey.FETCH, version=12)
            client.wire.bytes = b""
    (lane,) = client.connection.lanes.values()
    assert isinstance(lane, FetchLane)
    assert sum(len(asked.partitions) for asked in lane._known.values()) <= 4 * MAX_KNOWN


async def test_a_lane_remembers_no_partition_that_the_client_may_not_read(served: Served, taken: list[bool]) -> None:
    client = Client(served)
    for _ in range(4):
        await ask(client, fetch(0), 12)
    assert taken[-1]
    served.services.authorizer = StandardAuthorizer([])
    for _ in range(2):
        answer = await ask(client, fetch(0), 12)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    (lane,) = client.connection.lanes.values()
    assert isinstance(lane, FetchLane)
    assert [asked.partitions for asked in lane._known.values()] == [{}]


async def test_one_bound_holds_for_the_partitions_of_all_topics_of_a_lane(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_of_fetch, "MAX_PARTITIONS", 4)
    client = Client(served)
    for wait_ms in (-1, -2, -3):  # the lane distinguishes these requests as it distinguishes topics
        for index in (0, 0, 1, 2):
            await ask(client, fetch(0, index=index, wait_ms=wait_ms))
    (lane,) = client.connection.lanes.values()
    assert isinstance(lane, FetchLane)
    assert sum(len(asked.partitions) for asked in lane._known.values()) == 4


async def test_a_connection_has_a_bounded_number_of_lanes_for_an_api(served: Served, taken: list[bool]) -> None:
    client = Client(served)
    for version in range(MIN_VERSION, VERSIONS.high + 1):
        for _ in range(4):
            await ask(client, fetch(0), version)
        assert taken[-1]
    assert [key & 0xFFFF for key in client.connection.lanes] == list(range(VERSIONS.high + 1))[-LANES_PER_API:]


async def test_a_lane_serves_also_the_newest_of_many_sessions(served: Served, taken: list[bool]) -> None:
    client, session = Client(served), 0
    for _ in range(MAX_KNOWN + 2):
        session = (await ask(client, fetch(0, 0, 0, session=(session, 0)))).session_id
        for epoch in range(1, 4):
            await ask(client, fetch(session=(session, epoch)))
        assert taken[-1], "the requests of sessions that have ended are forgotten"


async def test_a_lane_gives_up_a_client_with_its_own_encoding(
    served: Served, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    examined: list[object] = []

    def noted(*arguments: Any) -> Any:
        examined.append(arguments)
        return changing(*arguments)

    monkeypatch.setattr(lane_of_fetch, "changing", noted)
    client = Client(served)
    for own, standard, expected in ((MAX_FAILED_ATTEMPTS + 1, 3, True), (20, 3, False)):
        for _ in range(own):
            body = client._frame(fetch(0), ApiKey.FETCH, 12)[4:-1] + UNKNOWN_TAG
            client._receive(pack(">i", len(body)) + body)
        for _ in range(standard):
            await ask(client, fetch(0, wait_ms=-own), 12)
        assert taken[-1] is expected
    assert len(examined) == 2 * MAX_FAILED_ATTEMPTS, "the successful attempt is between the failed ones"


async def test_a_full_lane_forgets_a_request_only_if_it_does_not_come_again(
    served: Served, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_of_fetch, "MAX_KNOWN", 2)
    client, asked = Client(served), [fetch(0, wait_ms=-1 - number) for number in range(3)]
    for request in (asked[0], asked[0], *asked[:2], *asked[:2]):
        await ask(client, request)
    assert taken[-2:] == [True, True]
    for expected in (False, False, False, False, False, False, True):  # the lane looks at every second miss only
        await ask(client, asked[2])
        assert taken[-1] is expected
    for request, expected in ((asked[1], True), (asked[0], False)):
        await ask(client, request)
        assert taken[-1] is expected


async def test_a_client_that_asks_for_too_many_topics_in_turn_does_not_pay_for_an_attempt_at_each_request(
    served: Served, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, attempts = Client(served), []

    def noted(*arguments: Any) -> Any:
        attempts.append(arguments)
        return changing(*arguments)

    monkeypatch.setattr(lane_of_fetch, "changing", noted)
    asked = [fetch(0, wait_ms=-1 - number) for number in range(MAX_KNOWN + 1)]
    for request in asked * 2:
        await ask(client, request)
    attempts.clear()
    taken.clear()
    for request in asked * 3:
        await ask(client, request)
    assert attempts == []
    assert taken.count(True) == 3 * MAX_KNOWN


async def test_a_lane_remembers_no_layout_of_a_forgotten_request(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_of_fetch, "MAX_KNOWN", 2)
    client = Client(served)
    for size in range(20):
        for _ in range(8):
            await ask(client, fetch(0, rack="r" * size))
    (lane,) = client.connection.lanes.values()
    assert isinstance(lane, FetchLane)
    assert len(lane._layouts) == len(lane._known) == 2


async def test_a_forgotten_request_does_not_exclude_requests_of_the_same_size(
    served: Served, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request in a session names no partition, so its numbers are at other positions."""
    monkeypatch.setattr(lane_of_fetch, "MAX_KNOWN", 1)
    client = Client(served)
    session = (await ask(client, fetch(0, session=(0, 0)))).session_id
    sizes = [len(client._frame(request, ApiKey.FETCH, 17)) for request in (fetch(0), fetch(session=(session, 1)))]
    for _ in range(3):
        await ask(client, fetch(0))
    assert taken[-1]
    for epoch, expected in ((1, False), (2, False), (3, True)):
        await ask(client, fetch(session=(session, epoch), rack="r" * (sizes[0] - sizes[1])))
        assert taken[-1] is expected


async def test_a_request_of_the_same_size_as_a_forgotten_one_is_still_known(
    served: Served, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_of_fetch, "MAX_KNOWN", 2)
    client, asked = Client(served), [fetch(0, wait_ms=-1), fetch(0, wait_ms=-2), fetch(0, rack="rack")]
    for request in (asked[0], asked[0], *asked[:2]):
        await ask(client, request)
    (lane,) = client.connection.lanes.values()
    assert isinstance(lane, FetchLane)
    assert len(lane._known) == 2
    for _ in range(8):
        await ask(client, asked[1])
        await ask(client, asked[2])
    for request, expected in ((asked[1], True), (asked[2], True), (asked[0], False)):
        await ask(client, request)
        assert taken[-1] is expected


async def test_a_waiting_fetch_keeps_its_offset_when_another_connection_uses_its_session(
    served: Served, taken: list[bool]
) -> None:
    sizes = [write(served), write(served)]
    client, session, epoch = Client(served), 0, 1
    session = (await ask(client, fetch(0, 0, 0, session=(0, 0)))).session_id
    for _ in range(3):
        await ask(client, fetch(2, session=(session, epoch)))
        epoch += 1
    count = len(client.answers())
    client.send(fetch(session=(session, epoch), wait_ms=500), api=ApiKey.FETCH, version=17)
    served.deadlines.fire()
    await client.answered(count + 1)
    client.send(fetch(session=(session, epoch + 1), wait_ms=500), api=ApiKey.FETCH, version=17)
    assert taken[-1]
    assert not client.has_answers(count + 2), "the request waits at offset 2"
    assert records_of(await ask(Client(served), fetch(0, session=(session, epoch + 2)))) == [(0, sum(sizes))]
    size = write(served)
    answer = (await client.answered(count + 2))[count + 1][1]
    assert records_of(answer) == [(0, size)], "the records from the offset of this request on"
