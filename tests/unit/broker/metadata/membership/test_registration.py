"""Creating a cluster and registering its first broker are one write, even if the broker takes over a data directory of
another installation.
"""

import asyncio
from dataclasses import replace

import pytest
from tests.support.shared_tree import SharedTree

from oncelog_broker.identity.note import StoreKind
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership import registration
from oncelog_broker.metadata.membership.endpoints import EndpointInUse
from oncelog_broker.metadata.membership.producer_ids import ProducerIdManager
from oncelog_broker.metadata.membership.registration import (
    BrokerIdInUse,
    FoundLogs,
    FoundTopic,
    WrongStore,
    check_store,
    register_broker,
)
from oncelog_broker.metadata.membership.store_identity import alone_in_sync, read_store_facts
from oncelog_broker.metadata.model import reader
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.metadata.model.payloads import (
    BrokerRegistration,
    Endpoint,
    PartitionState,
    encode_cluster_id,
    encode_partition_state,
    parse_broker,
    parse_incarnation,
    parse_topic,
)
from oncelog_broker.metadata.stores import embedded
from oncelog_broker.metadata.stores.store import MAX_REQUEST_BYTES, ConnectionLost, SessionState
from oncelog_broker.metadata.stores.zookeeper.zookeeper_store import ZooKeeperStore
from oncelog_protocol.uuids import uuid_from_string

REGISTRATION = BrokerRegistration((Endpoint("PLAINTEXT", "h", 9092),), timestamp_ms=1)
ELSEWHERE = BrokerRegistration((Endpoint("PLAINTEXT", "h", 9093),), timestamp_ms=1)


def of_broker(number):
    return BrokerRegistration((Endpoint("PLAINTEXT", f"h{number}", 9092),), timestamp_ms=1)


async def test_the_first_broker_founds_the_cluster_in_one_commit(embedded_store, monkeypatch):
    commits = []
    commit = embedded._commit_rows
    monkeypatch.setattr(embedded, "_commit_rows", lambda *arguments: (commits.append(1), commit(*arguments)))
    membership = await register_broker(embedded_store, 1, REGISTRATION)
    assert commits == [1]
    assert membership.founded
    assert len(uuid_from_string(membership.cluster_id)) == 16
    image = await reader.read_image(embedded_store)
    assert image.cluster_id == membership.cluster_id
    assert image.brokers[1].epoch == membership.broker_epoch
    assert image.brokers[1].endpoint("PLAINTEXT").port == 9092


async def test_a_restart_keeps_the_cluster_and_has_a_higher_broker_epoch(open_store):
    store = await open_store()
    first = await register_broker(store, 1, REGISTRATION)
    await store.close()
    second = await register_broker(await open_store(), 1, REGISTRATION, found_logs=lambda: pytest.fail("asked"))
    assert second.cluster_id == first.cluster_id
    assert second.broker_epoch > first.broker_epoch
    assert not second.founded


async def test_a_foreign_data_directory_is_taken_over_when_the_store_is_new(embedded_store):
    topics = (FoundTopic("with-id", {0: 7, 1: -1}, b"i" * 16), FoundTopic("old", {3: 2}))
    logs = FoundLogs("foreign-cluster", topics, highest_producer_id=4321)
    membership = await register_broker(embedded_store, 1, REGISTRATION, lambda: logs)
    assert membership.cluster_id == "foreign-cluster"
    image = await reader.read_image(embedded_store)
    assert image.topic_by_id(b"i" * 16).name == "with-id"
    partition = image.partition("with-id", 0)
    assert (partition.leader, partition.leader_epoch, partition.isr) == (NO_LEADER, 7, (1,))
    assert image.partition("with-id", 1).leader_epoch == -1
    assert list(image.topics["old"].partitions) == [3]
    assert len(image.topics["old"].topic_id) == 16
    assert image.topics["old"].topic_id != bytes(16)
    assert await ProducerIdManager(embedded_store, 1).generate() == 4322


async def test_a_broker_id_is_taken_once(zookeeper):
    first, second = await ZooKeeperStore.open(zookeeper), await ZooKeeperStore.open(zookeeper)
    await register_broker(first, 1, REGISTRATION)
    with pytest.raises(BrokerIdInUse, match="broker id 1 is in use by another live broker"):
        await register_broker(second, 1, REGISTRATION)
    assert not (await register_broker(second, 2, ELSEWHERE)).founded
    await first.close()
    await second.close()


async def test_the_registration_of_a_session_that_ends_is_waited_for(zookeeper):
    first, second = await ZooKeeperStore.open(zookeeper), await ZooKeeperStore.open(zookeeper)
    before = await register_broker(first, 1, REGISTRATION)
    waiting = asyncio.ensure_future(register_broker(second, 1, REGISTRATION, wait_seconds=60))
    looked = asyncio.Event()
    exists = second.exists

    async def seen(path):
        found = await exists(path)
        looked.set()
        return found

    second.exists = seen
    await looked.wait()
    await first.close()
    after = await waiting
    assert after.broker_epoch > before.broker_epoch
    assert after.incarnation == before.incarnation + 1
    await second.close()


async def test_each_registration_names_its_predecessor(open_store):
    store = await open_store()
    first = await register_broker(store, 1, replace(REGISTRATION, boot="b", is_log_tail_kept=False))
    data, stat = await store.get(paths.broker_id(1))
    assert (first.broker_epoch, first.incarnation) == (stat.czxid, 0)
    assert parse_broker(data, "").previous_epoch == -1
    assert not parse_broker(data, "").is_log_tail_kept
    await store.close()
    store = await open_store()
    second = await register_broker(store, 1, replace(REGISTRATION, boot="b"))
    registered = parse_broker((await store.get(paths.broker_id(1)))[0], "")
    assert second.incarnation == 1
    assert first.broker_epoch <= registered.previous_epoch < second.broker_epoch
    assert (registered.boot, registered.is_log_tail_kept) == ("b", True)


async def test_a_possible_loss_is_remembered_from_registration_to_registration(open_store):
    said = []
    for is_kept in (True, False, True, True, False, True):
        store = await open_store()
        membership = await register_broker(store, 1, replace(REGISTRATION, is_log_tail_kept=is_kept))
        data, stat = await store.get(paths.incarnation(1))
        said.append((membership.broker_epoch, parse_incarnation(data, "").unsure_epoch(stat.mzxid)))
        await store.close()
    epochs = [epoch for epoch, _ in said]
    assert [unsure for _, unsure in said] == [-1, epochs[1], epochs[1], epochs[1], epochs[4], epochs[4]]


async def test_a_registration_whose_reply_was_lost_is_recognised(unreliable_store):
    unreliable_store.lose_replies = 1
    with pytest.raises(ConnectionLost):
        await register_broker(unreliable_store, 1, REGISTRATION)
    again = await register_broker(unreliable_store, 1, REGISTRATION)
    assert again.broker_epoch == (await unreliable_store.exists(paths.broker_id(1))).czxid
    assert unreliable_store.session is SessionState.CONNECTED


async def test_brokers_that_start_together_found_one_cluster(embedded_store):
    members = await asyncio.gather(*(register_broker(embedded_store, broker, of_broker(broker)) for broker in range(5)))
    assert len({member.cluster_id for member in members}) == 1
    assert [member.founded for member in members] == [True, False, False, False, False]
    assert await embedded_store.children(paths.BROKER_IDS) == ["0", "1", "2", "3", "4"]


def many_topics(count):
    return tuple(FoundTopic(f"a-topic-with-a-name-{number}", dict.fromkeys(range(50), 3)) for number in range(count))


@pytest.fixture
def limited(embedded_store, monkeypatch):
    """A store with ZooKeeper's limit on the size of a write."""
    multi = embedded_store.multi

    async def limited_multi(operations):
        size = sum(len(each.path) + len(getattr(each, "data", b"")) + 80 for each in operations)
        assert size <= MAX_REQUEST_BYTES
        return await multi(operations)

    monkeypatch.setattr(embedded_store, "multi", limited_multi)
    return embedded_store


async def test_s74_a_cluster_begins_with_any_number_of_partitions(limited):
    membership = await register_broker(limited, 1, REGISTRATION, lambda: FoundLogs("c", many_topics(100), 7))
    assert membership.founded
    image = await reader.read_image(limited)
    assert len(image.topics) == 100
    assert sum(len(topic.partitions) for topic in image.topics.values()) == 5000
    assert image.partition("a-topic-with-a-name-99", 49).leader_epoch == 3
    assert await limited.exists(paths.FOUNDING) is None


async def test_s74_a_founding_that_was_cut_short_is_continued_and_nobody_joins_meanwhile(limited):
    def found_logs():
        return FoundLogs("c", many_topics(100))

    multi, writes = limited.multi, 0

    async def cut_short(operations):
        nonlocal writes
        writes += 1
        if writes > 2:
            raise ConnectionLost("", "killed here")
        return await multi(operations)

    limited.multi = cut_short
    with pytest.raises(ConnectionLost, match="killed"):
        await register_broker(limited, 1, REGISTRATION, found_logs, process="p1")
    limited.multi = multi
    assert 0 < len(await limited.children(paths.TOPICS)) < 100
    first = paths.topic("a-topic-with-a-name-0")
    topic_id = parse_topic((await limited.get(first))[0], first).topic_id
    elsewhere = replace(REGISTRATION, endpoints=(Endpoint("PLAINTEXT", "elsewhere", 9092),))
    for other in (2, 3):
        with pytest.raises(ConnectionLost, match="broker 1 is creating the cluster and has not finished"):
            await register_broker(limited, other, elsewhere)
    assert (await register_broker(limited, 1, REGISTRATION, found_logs, process="p2")).founded
    image = await reader.read_image(limited)
    assert len(image.topics) == 100
    assert image.topics["a-topic-with-a-name-0"].topic_id == topic_id
    assert not (await register_broker(limited, 2, elsewhere)).founded


async def test_s74_an_earlier_process_of_the_founder_writes_nothing_more(limited):
    """The broker's earlier process was paused while it wrote the first znodes of a new cluster to the store. Meanwhile
    the broker's next process has written all of them.
    """
    multi = limited.multi
    interfered = False

    async def paused(operations):
        nonlocal interfered
        if not interfered and await limited.exists(paths.FOUNDING) is not None:
            interfered = True
            limited.multi = multi
            await register_broker(limited, 1, REGISTRATION, lambda: FoundLogs("c", many_topics(100)), process="p2")
            await limited.delete(paths.broker_id(1))
        return await multi(operations)

    limited.multi = paused
    membership = await register_broker(limited, 1, REGISTRATION, lambda: FoundLogs("c", many_topics(80)), process="p1")
    assert not membership.founded
    assert len((await reader.read_image(limited)).topics) == 100


async def test_s74_a_broker_that_runs_never_founds_its_cluster_anew(open_store):
    store = await open_store()
    before = await register_broker(store, 1, REGISTRATION)
    await store.delete(paths.broker_id(1))
    await store.delete(paths.CLUSTER_ID)
    with pytest.raises(WrongStore, match="the store is empty: it no longer contains cluster"):
        await register_broker(store, 1, REGISTRATION, lambda: pytest.fail("asked"), before=before)
    assert await store.exists(paths.CLUSTER_ID) is None
    other = before._replace(store_id="another")
    await store.create(paths.CLUSTER_ID, encode_cluster_id(before.cluster_id))
    with pytest.raises(WrongStore, match="the store now belongs to cluster"):
        await register_broker(store, 1, REGISTRATION, before=other)
    assert (await register_broker(store, 1, REGISTRATION, before=before)).incarnation == before.incarnation + 1


async def test_the_store_has_an_id_and_knows_the_process_that_registered(embedded_store):
    first = await register_broker(embedded_store, 1, REGISTRATION, process="p1")
    facts = await read_store_facts(embedded_store, 1, StoreKind.EMBEDDED, "here")
    assert (facts.cluster_id, facts.store_id) == (first.cluster_id, first.store_id)
    assert (facts.registration, facts.nonce) == (first.incarnation, "p1")
    assert facts.zxid == embedded_store.last_zxid
    await embedded_store.delete(paths.broker_id(1))
    assert (await register_broker(embedded_store, 1, REGISTRATION)).store_id == first.store_id
    assert (await read_store_facts(embedded_store, 1, StoreKind.EMBEDDED, "")).nonce == "", "a release before"


async def test_a_store_of_the_release_before_gets_an_id(embedded_store):
    before = await register_broker(embedded_store, 1, REGISTRATION)
    await embedded_store.delete(paths.STORE_ID)
    await embedded_store.delete(paths.broker_id(1))
    after = await register_broker(embedded_store, 1, REGISTRATION)
    assert after.store_id not in ("", before.store_id)
    assert after.cluster_id == before.cluster_id


async def test_adopted_epochs_leap_where_others_may_have_had_higher_ones(embedded_store):
    topics = (FoundTopic("t", {0: 7, 1: -1, 2: 2**31 - 2}),)
    await register_broker(embedded_store, 1, REGISTRATION, lambda: FoundLogs("c", topics, epoch_leap=1000))
    image = await reader.read_image(embedded_store)
    assert [image.partition("t", each).leader_epoch for each in range(3)] == [1007, 999, 2**31 - 2]


async def test_the_content_of_an_embedded_store_is_taken_over(embedded_store, tmp_path):
    await register_broker(
        embedded_store, 1, REGISTRATION, lambda: FoundLogs("c", (FoundTopic("t", {0: 7}, b"i" * 16),))
    )
    state = encode_partition_state(PartitionState(1, 9, (1,), 4))
    await embedded_store.set(paths.partition_state("t", 0), state)
    await embedded_store.create(paths.user_config("anna"), b"{}")
    await embedded_store.create(paths.LATEST_PRODUCER_ID_BLOCK, b"{}")
    await embedded_store.create(paths.LOGIN_KEY, b"k", make_parents=True)
    assert list(embedded_store.nodes()) == sorted(embedded_store.nodes())
    assert paths.broker_id(1) not in embedded_store.nodes()
    other = embedded.EmbeddedStore.open(tmp_path / "other.db")
    found = FoundLogs("c", (FoundTopic("t", {0: 1}), FoundTopic("u", {0: 1})), 5, nodes=embedded_store.nodes())
    membership = await register_broker(other, 1, REGISTRATION, lambda: found)
    assert membership.incarnation == 0
    assert membership.cluster_id == "c"
    image = await reader.read_image(other)
    assert image.topics["t"].topic_id == b"i" * 16
    assert (image.partition("t", 0).leader, image.partition("t", 0).leader_epoch) == (NO_LEADER, 9)
    assert image.partition("u", 0).leader_epoch == 1
    assert (await other.get(paths.user_config("anna")))[0] == b"{}"
    assert (await other.get(paths.LATEST_PRODUCER_ID_BLOCK))[0] == b"{}"
    assert (await other.get(paths.LOGIN_KEY))[0] == b"k"
    await other.close()


async def test_s73_partitions_without_another_replica_are_found(embedded_store):
    assert await alone_in_sync(embedded_store, 1) == ()
    logs = FoundLogs("c", (FoundTopic("t", dict.fromkeys(range(4), 0)), FoundTopic("damaged", {0: 0})))
    await register_broker(embedded_store, 1, REGISTRATION, lambda: logs)
    for partition, isr in enumerate([(1,), (1, 2), (2,)]):
        state = encode_partition_state(PartitionState(1, 0, isr, 1))
        await embedded_store.set(paths.partition_state("t", partition), state)
    await embedded_store.set(paths.partition_state("t", 3), b"damaged")
    await embedded_store.set(paths.topic("damaged"), b"damaged")
    assert await alone_in_sync(embedded_store, 1) == ("t-0",)
    assert await alone_in_sync(embedded_store, 2) == (), "it is not a replica"


@pytest.mark.parametrize("path", [paths.STORE_ID, paths.incarnation(1)])
async def test_an_identity_in_the_store_that_cannot_be_read_is_done_without(embedded_store, path):
    first = await register_broker(embedded_store, 1, REGISTRATION, process="p")
    await embedded_store.set(path, b"damaged")
    facts = await read_store_facts(embedded_store, 1, StoreKind.EMBEDDED, "here")
    assert facts.cluster_id == first.cluster_id
    assert (facts.store_id == "") is (path == paths.STORE_ID)
    assert (facts.nonce == "") is (path != paths.STORE_ID)


def at(*addresses):
    return BrokerRegistration(
        tuple(Endpoint(f"L{number}", host, port) for number, (host, port) in enumerate(addresses)), timestamp_ms=1
    )


@pytest.mark.parametrize(
    "addresses",
    [[("h", 1)], [("H", 1)], [("other", 1), ("h", 1)], [("h", 2)]],
    ids=["the same", "case", "any", "second"],
)
async def test_s79_an_address_that_a_live_broker_has_is_refused(addresses):
    tree = SharedTree()
    first, second = tree.connect(), tree.connect()
    await register_broker(first, 1, at(("h", 1), ("h", 2)))
    with pytest.raises(EndpointInUse, match="is used by the live broker 1"):
        await register_broker(second, 2, at(*addresses))
    assert await second.exists(paths.broker_id(2)) is None
    await register_broker(second, 2, at(("h", 3), ("g", 1)))


async def test_s79_a_broker_keeps_its_own_address_from_start_to_start():
    tree = SharedTree()
    first, second = tree.connect(), tree.connect()
    await register_broker(first, 1, REGISTRATION)
    await first.close()
    assert not (await register_broker(second, 1, REGISTRATION)).founded


async def test_s79_the_address_of_a_broker_that_is_dying_is_waited_for():
    """The next broker at that address may have another broker id."""
    tree = SharedTree()
    first, second = tree.connect(), tree.connect()
    await register_broker(first, 1, REGISTRATION)
    waiting = asyncio.ensure_future(register_broker(second, 2, REGISTRATION, wait_seconds=60))
    watched = asyncio.Event()
    exists = second.exists

    async def watched_exists(path):
        watched.set()
        return await exists(path)

    second.exists = watched_exists
    await watched.wait()
    await first.close()
    assert (await waiting).incarnation == 0


async def test_s79_one_of_two_brokers_that_register_one_address_at_once_stays(monkeypatch):
    """Both brokers checked the address before either was registered."""
    tree = SharedTree()
    stores = {1: tree.connect(), 2: tree.connect()}
    await register_broker(tree.connect(), 3, ELSEWHERE)
    conflict, both = registration.endpoint_conflict, asyncio.Barrier(2)

    async def looked_at_once(store, broker_id, endpoints, before=None):
        found = await conflict(store, broker_id, endpoints, before)
        if before is None:
            await both.wait()
        return found

    monkeypatch.setattr(registration, "endpoint_conflict", looked_at_once)
    outcomes = await asyncio.gather(
        *(register_broker(store, broker, REGISTRATION) for broker, store in stores.items()), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["EndpointInUse", "Membership"]
    (refused,) = [
        broker for broker, outcome in zip(stores, outcomes, strict=True) if isinstance(outcome, EndpointInUse)
    ]
    image = await reader.read_image(stores[1])
    assert image.brokers.keys() == {1, 2, 3} - {refused}


async def test_s74_a_running_process_accepts_no_other_store_and_no_earlier_state():
    """The process refuses to register in the other metadata store, too, whichever brokers are registered there."""
    mine = SharedTree()
    first = mine.connect()
    early = await register_broker(first, 1, REGISTRATION, process="p0")
    before = early._replace(incarnation=early.incarnation + 1)
    await check_store(first, 1, early)
    another = SharedTree().connect()
    with pytest.raises(WrongStore, match="the store is empty"):
        await check_store(another, 1, early)
    await register_broker(another, 2, of_broker(2), lambda: FoundLogs(early.cluster_id))
    with pytest.raises(WrongStore, match="the store now belongs to cluster"):
        await check_store(another, 1, early)
    first.expire()
    again = mine.connect()
    for ask in (check_store(again, 1, before), register_broker(again, 1, REGISTRATION, process="p1", before=before)):
        with pytest.raises(WrongStore, match="an older state: it contains 1 registrations of this broker"):
            await ask
    assert await again.children(paths.BROKER_IDS) == []
