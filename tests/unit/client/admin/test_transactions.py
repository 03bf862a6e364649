"""`admin.transactions` against a broker whose responses the test chooses."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from oncelog import Admin, TopicPartition
from oncelog.admin import calls
from oncelog.admin.coordinators import Coordinators
from oncelog.admin.hanging import Hang
from oncelog.cluster import Broker
from oncelog.config import AdminConfig, load
from oncelog.errors import ErrorCode, KafkaError, PartialFailure, UnsupportedVersion
from oncelog.metadata.internal_topics import TRANSACTION_STATE
from oncelog_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from oncelog_protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from oncelog_protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from oncelog_protocol.messages.fetch import IsolationLevel
from oncelog_protocol.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest, FindCoordinatorResponse
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog_protocol.messages.list_offsets import EARLIEST_TIMESTAMP, ListOffsetsRequest
from oncelog_protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from oncelog_protocol.producer_id import ProducerIdAndEpoch

HERE = TopicPartition("topic", 0)
NODE = 1


class Transactions:
    """What the broker knows about transactions. `producers`: producer id -> start offset of its open transaction;
    `states`: transactional id -> (producer id, state, whether the partition `HERE` belongs to it).
    """

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.producers: dict[int, int] = {}
        self.states: dict[str, tuple[int, str, bool]] = {}
        self.codes: list[int] = []
        """The next error codes of coordinators and markers, in order; after the last one requests succeed."""
        self.last_timestamp = 1000
        self.coordinator_epoch = -1
        """The coordinator epoch of each producer's last marker."""
        broker.handlers |= {
            FindCoordinatorRequest: self.find_coordinator,
            ListTransactionsRequest: self.list,
            DescribeTransactionsRequest: self.describe,
            DescribeProducersRequest: self.describe_producers,
            WriteTxnMarkersRequest: self.write_markers,
            InitProducerIdRequest: self.init,
            DescribeConfigsRequest: self.configs,
        }

    def code(self) -> int:
        return self.codes.pop(0) if self.codes else 0

    def find_coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        found = FindCoordinatorResponse.Coordinator(
            key=request.coordinator_keys[0], node_id=NODE, host="127.0.0.1", port=self.broker.port, error_code=0
        )
        return FindCoordinatorResponse(coordinators=[found])

    def list(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        return ListTransactionsResponse(
            error_code=self.code(),
            unknown_state_filters=[name for name in request.state_filters if name == "Nonsense"],
            transaction_states=[
                ListTransactionsResponse.TransactionState(
                    transactional_id=name, producer_id=producer_id, transaction_state=state
                )
                for name, (producer_id, state, _) in self.states.items()
                if not request.producer_id_filters or producer_id in request.producer_id_filters
            ],
        )

    def describe(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        answers = []
        for name in request.transactional_ids:
            producer_id, state, is_held = self.states.get(name, (-1, "", False))
            topics = [DescribeTransactionsResponse.TransactionState.TopicData(topic="topic", partitions=[0])]
            answers.append(
                DescribeTransactionsResponse.TransactionState(
                    error_code=0 if name in self.states else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                    transactional_id=name,
                    transaction_state=state,
                    transaction_timeout_ms=4567,
                    transaction_start_time_ms=-1,
                    producer_id=producer_id,
                    producer_epoch=3,
                    topics=topics if is_held else [],
                )
            )
        return DescribeTransactionsResponse(transaction_states=answers)

    def describe_producers(self, request: DescribeProducersRequest) -> DescribeProducersResponse:
        topic = DescribeProducersResponse.TopicResponse
        answer = topic.PartitionResponse(
            partition_index=0,
            error_code=0,
            active_producers=[
                topic.PartitionResponse.ProducerState(
                    producer_id=producer_id,
                    producer_epoch=3,
                    last_timestamp=self.last_timestamp,
                    coordinator_epoch=self.coordinator_epoch,
                    current_txn_start_offset=start_offset,
                )
                for producer_id, start_offset in self.producers.items()
            ],
        )
        return DescribeProducersResponse(topics=[topic(name="topic", partitions=[answer])])

    def write_markers(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        (marker,) = request.markers
        code = self.code()
        if not code:
            self.producers.pop(marker.producer_id, None)
        result = WriteTxnMarkersResponse.WritableTxnMarkerResult
        topic = result.WritableTxnMarkerTopicResult
        partition = topic.WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
        return WriteTxnMarkersResponse(
            markers=[result(producer_id=marker.producer_id, topics=[topic(name="topic", partitions=[partition])])]
        )

    def init(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        return InitProducerIdResponse(error_code=self.code(), producer_id=7, producer_epoch=4)

    def configs(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        result = DescribeConfigsResponse.DescribeConfigsResult(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            error_message=None,
            resource_type=request.resources[0].resource_type,
            resource_name=request.resources[0].resource_name,
            configs=[],
        )
        return DescribeConfigsResponse(results=[result])


@pytest.fixture
def known(fake_broker: Any) -> Transactions:
    return Transactions(fake_broker)


@pytest.fixture
def address(fake_broker: Any) -> str:
    return str(fake_broker.address)


async def test_e32_an_open_transaction_that_no_coordinator_holds_hangs(known: Transactions, address: str) -> None:
    known.producers = {7: 5, 8: 3, 9: 4}
    known.states = {"live": (7, "Ongoing", True), "ended": (8, "CompleteCommit", False)}
    async with Admin(address) as admin:
        found = await admin.transactions.find_hanging([HERE])
        assert [(each.transaction.start_offset, each.hang) for each in found] == [(3, Hang.NOT_HELD), (4, Hang.UNKNOWN)]
        assert await admin.transactions.find_hanging() == found
        assert await admin.transactions.find_hanging(broker_id=2) == []
        assert await admin.transactions.find_hanging([HERE], broker_id=2) == []
    assert all(each.is_late for each in found)


async def test_e32_a_transaction_that_is_just_ending_does_not_hang(
    known: Transactions, address: str, fake_broker: Any
) -> None:
    """The marker is written between the request about its partition and the request to its coordinator."""
    known.producers = {7: 5}
    known.states = {"ending": (7, "CompleteCommit", False)}
    looks = []

    def look(request: DescribeProducersRequest) -> DescribeProducersResponse:
        looks.append(known.describe_producers(request))
        known.producers = {7: 9}  # the producer's next transaction is already open
        return looks[-1]

    fake_broker.handlers[DescribeProducersRequest] = look
    async with Admin(address) as admin:
        assert await admin.transactions.find_hanging([HERE]) == []
    assert len(looks) == 2


async def test_the_search_can_be_limited_to_old_transactions(known: Transactions, address: str) -> None:
    known.producers = {7: 5}
    async with Admin(address) as admin:
        assert await admin.transactions.find_hanging([HERE], min_age_ms=60_000)
        known.last_timestamp = 2**50  # the producer chooses this timestamp, so it may be wrong
        assert await admin.transactions.find_hanging([HERE], min_age_ms=60_000) == []
        assert await admin.transactions.find_hanging([HERE])


async def test_a_coordinator_that_knows_the_id_no_longer_knows_nothing(
    known: Transactions, address: str, fake_broker: Any
) -> None:
    """The transactional id expires between the two requests."""
    known.producers = {7: 5, 8: 6}
    known.states = {"expiring": (7, "Empty", False), "live": (8, "Ongoing", True)}

    def listed(request: ListTransactionsRequest) -> ListTransactionsResponse:
        answer = known.list(request)
        known.states.pop("expiring", None)
        return answer

    fake_broker.handlers[ListTransactionsRequest] = listed
    async with Admin(address) as admin:
        (found,) = await admin.transactions.find_hanging([HERE])
    assert found.hang is Hang.UNKNOWN


async def test_s40_a_marker_that_the_log_refuses_makes_its_transaction_hang(
    known: Transactions, address: str, fake_broker: Any
) -> None:
    fake_broker.topics[TRANSACTION_STATE] = 50
    fake_broker.leader_epoch = 4
    known.producers, known.coordinator_epoch = {7: 5, 8: 6}, 5
    known.states = {"decided": (7, "PrepareAbort", True), "live": (8, "Ongoing", True)}
    async with Admin(address) as admin:
        (found,) = await admin.transactions.find_hanging([HERE])
        assert (found.transaction.start_offset, found.hang) == (5, Hang.FENCED)
        fake_broker.leader_epoch = 5
        assert await admin.transactions.find_hanging([HERE]) == []


async def test_abort_writes_one_marker_for_the_transaction_that_begins_there(
    known: Transactions, address: str, fake_broker: Any
) -> None:
    known.producers = {7: 5, 8: 6}
    async with Admin(address) as admin:
        assert (await admin.transactions.abort(HERE, 6)).producer_id == 8
        with pytest.raises(KafkaError, match="topic-0: no open transaction begins at offset 6") as raised:
            await admin.transactions.abort(HERE, 6)
        assert raised.value.code is ErrorCode.INVALID_TXN_STATE
        await admin.transactions.abort_producer(HERE, ProducerIdAndEpoch(7, 3), -1)
    assert known.producers == {}
    markers = [request.markers[0] for request in fake_broker.requests_of(WriteTxnMarkersRequest)]
    assert [(m.producer_id, m.producer_epoch, m.coordinator_epoch, m.transaction_result) for m in markers] == [
        (8, 3, 0, False),
        (7, 3, 0, False),
    ]


async def test_abort_after_a_lost_answer_ends_nothing_else(
    known: Transactions, address: str, fake_broker: Any, fast: dict[str, int], hang_up: type[Exception]
) -> None:
    known.producers = {7: 5}

    def written_and_lost(request: WriteTxnMarkersRequest) -> None:
        known.write_markers(request)
        known.producers = {7: 9}  # the producer is alive and has begun its next transaction
        raise hang_up

    fake_broker.handlers[WriteTxnMarkersRequest] = written_and_lost
    async with Admin(address, **fast) as admin:
        assert (await admin.transactions.abort(HERE, 5)).producer_id == 7
    assert known.producers == {7: 9}
    assert len(fake_broker.requests_of(WriteTxnMarkersRequest)) == 1


async def test_an_abort_that_is_refused_is_not_tried_again(known: Transactions, address: str, fake_broker: Any) -> None:
    known.producers, known.codes = {7: 5}, [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    async with Admin(address) as admin:
        with pytest.raises(KafkaError) as raised:
            await admin.transactions.abort(HERE, 5)
    assert raised.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert len(fake_broker.requests_of(WriteTxnMarkersRequest)) == 1


async def test_fencing_waits_for_the_open_transaction_to_end(
    known: Transactions, address: str, fake_broker: Any, fast: dict[str, int]
) -> None:
    known.states, known.codes = {"t": (7, "Ongoing", True)}, [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    async with Admin(address, **fast) as admin:
        assert await admin.transactions.fence(["t"]) == {"t": ProducerIdAndEpoch(7, 4)}
        with pytest.raises(KafkaError) as raised:
            await admin.transactions.fence(["typo"])
    assert raised.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    asked = fake_broker.requests_of(InitProducerIdRequest)
    assert [(each.transactional_id, each.transaction_timeout_ms, each.producer_id) for each in asked] == [
        ("t", 4567, -1)
    ] * 3


async def test_a_coordinator_that_loads_is_asked_again(known: Transactions, address: str, fast: dict[str, int]) -> None:
    known.states, known.codes = {"t": (7, "Ongoing", True)}, [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    async with Admin(address, **fast) as admin:
        (listed,) = await admin.transactions.list()
    assert (listed.transactional_id, listed.producer_id, listed.coordinator_id) == ("t", 7, NODE)


async def test_a_coordinator_is_looked_up_once_and_again_when_it_has_moved(
    known: Transactions, address: str, fake_broker: Any, fast: dict[str, int]
) -> None:
    known.states = {"t": (7, "Ongoing", True)}
    async with Admin(address, **fast) as admin:
        for _ in range(3):
            await admin.transactions.fence(["t"])
        assert len(fake_broker.requests_of(FindCoordinatorRequest)) == 1
        known.codes = [ErrorCode.NOT_COORDINATOR]
        await admin.transactions.fence(["t"])
        assert len(fake_broker.requests_of(FindCoordinatorRequest)) == 2


async def test_a_node_that_is_no_coordinator_any_more_is_forgotten_for_all(
    known: Transactions, address: str, fake_broker: Any, fast: dict[str, int]
) -> None:
    """The coordinating broker may be dead. The client must forget the broker for all transactional ids, because
    otherwise the request for each id would wait for it once.
    """
    known.states = {"s": (6, "Ongoing", True), "t": (7, "Ongoing", True)}
    async with Admin(address, **fast) as admin:
        await admin.transactions.fence(["s", "t"])
        known.codes = [ErrorCode.NOT_COORDINATOR]
        await admin.transactions.fence(["t"])
        await admin.transactions.fence(["s"])
    asked = [each.coordinator_keys for each in fake_broker.requests_of(FindCoordinatorRequest)]
    assert sorted(asked[:2]) == [["s"], ["t"]]
    assert asked[2:] == [["t"], ["s"]]


async def test_coordinators_are_not_remembered_without_end(
    known: Transactions, address: str, fake_broker: Any, fast: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "COORDINATORS_KEPT", 2)
    known.states = dict.fromkeys("abc", (7, "Ongoing", True))
    async with Admin(address, **fast) as admin:
        for name in ("a", "b", "c", "c", "a"):
            await admin.transactions.fence([name])
            assert len(admin._calls._coordinators) <= 2
    asked = [each.coordinator_keys for each in fake_broker.requests_of(FindCoordinatorRequest)]
    assert asked == [["a"], ["b"], ["c"], ["a"]]


async def test_a_departed_broker_is_not_asked_for_ever(
    known: Transactions, address: str, fake_broker: Any, fast: dict[str, int]
) -> None:
    """The metadata list a dead broker until its session ends; then another broker leads its partitions."""
    known.states = {"t": (7, "Ongoing", True)}
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        fake_broker.others = {2: nobody.getsockname()[1]}

        def listed(request: ListTransactionsRequest) -> ListTransactionsResponse:
            answer = known.list(request)
            if len(fake_broker.requests_of(ListTransactionsRequest)) == 2:
                fake_broker.others = {}
                known.states["moved"] = (8, "Ongoing", True)
            return answer

        fake_broker.handlers[ListTransactionsRequest] = listed
        async with Admin(address, **fast) as admin:
            assert [each.transactional_id for each in await admin.transactions.list()] == ["moved", "t"]
    assert len(fake_broker.requests_of(ListTransactionsRequest)) == 3


async def test_transactions_are_filtered(known: Transactions, address: str, fake_broker: Any) -> None:
    async with Admin(address) as admin:
        await admin.transactions.list(states=["Ongoing"], producer_ids=[7], duration_ms=5, pattern="a.*")
        with pytest.raises(KafkaError, match="unknown transaction state: Nonsense"):
            await admin.transactions.list(states=["Nonsense"])
    asked = fake_broker.requests_of(ListTransactionsRequest)[0]
    assert (asked.state_filters, asked.producer_id_filters) == (["Ongoing"], [7])
    assert (asked.duration_filter, asked.transactional_id_pattern) == (5, "a.*")


@pytest.mark.parametrize(("version", "filters"), [(0, {"duration_ms": 5}), (1, {"pattern": "a"})])
async def test_a_filter_that_the_broker_would_pass_over_is_refused(
    known: Transactions, address: str, fake_broker: Any, version: int, filters: dict[str, Any]
) -> None:
    fake_broker.max_versions[66] = version
    async with Admin(address) as admin:
        assert await admin.transactions.list() == []
        with pytest.raises(UnsupportedVersion, match="broker 1 is too old"):
            await admin.transactions.list(**filters)


async def test_several_ids_fail_side_by_side(known: Transactions, address: str) -> None:
    known.states = {"t": (7, "Ongoing", True)}
    async with Admin(address) as admin:
        with pytest.raises(PartialFailure) as raised:
            await admin.transactions.describe(["t", "typo"])
    assert raised.value.results["t"].partitions == {HERE}
    assert list(raised.value.errors) == ["typo"]


async def test_s50_explaining_looks_again_while_transactions_come_and_go(
    known: Transactions, address: str, fake_broker: Any
) -> None:
    known.producers = {7: 3}
    known.states = {"t": (7, "Ongoing", True)}
    stable = iter([4, 5, 5])

    def offsets(request: ListOffsetsRequest) -> Any:
        wanted = request.topics[0].partitions[0]
        answer = fake_broker.on_list_offsets(request)
        if wanted.timestamp != EARLIEST_TIMESTAMP:
            is_stable = request.isolation_level == IsolationLevel.READ_COMMITTED
            answer.topics[0].partitions[0].offset = next(stable) if is_stable else 9
            known.producers = {7: 5}  # the open transaction has ended, and this is the next one
        return answer

    fake_broker.handlers[ListOffsetsRequest] = offsets
    async with Admin(address) as admin:
        explained = (await admin.transactions.explain([HERE]))[HERE]
    assert explained.pinned_by is not None
    assert (explained.pinned_by.start_offset, explained.last_stable_offset, explained.held_back) == (5, 5, 4)
    assert len(fake_broker.requests_of(DescribeProducersRequest)) == 2


async def test_all_brokers_are_asked_side_by_side() -> None:
    class ThreeBrokers:
        config = load(AdminConfig, "a:1", {})

        async def brokers(self) -> list[Broker]:
            return [Broker(node_id, "a", 1) for node_id in (1, 2, 3)]

    everybody = asyncio.Barrier(3)

    async def ask(node_id: int) -> int:
        await everybody.wait()  # no request gets a response before all requests have been sent
        return -node_id

    coordinators = Coordinators(ThreeBrokers(), CoordinatorType.TRANSACTION)  # type: ignore[arg-type]
    assert await coordinators.of_all_brokers(ask) == {1: -1, 2: -2, 3: -3}
