"""Brokers that start simultaneously with a new metadata store agree on one cluster id before any broker creates the
cluster.
"""

import asyncio

from tests.support.shared_tree import SharedTree

from oncelog_broker.metadata.membership.cluster_id import agreed_cluster_id
from oncelog_broker.metadata.membership.registration import FoundLogs, register_broker
from oncelog_broker.metadata.model.payloads import BrokerRegistration, Endpoint


def registration(number):
    return BrokerRegistration((Endpoint("PLAINTEXT", f"h{number}", 9092),), timestamp_ms=1)


async def test_brokers_that_start_together_agree_on_one_cluster_id():
    tree = SharedTree()
    stores = [tree.connect() for _ in range(3)]
    ids = await asyncio.gather(*(agreed_cluster_id(store, None, is_shared=True) for store in stores))
    assert len(set(ids)) == 1
    for number, store in enumerate(reversed(stores)):
        membership = await register_broker(store, number, registration(number), lambda: FoundLogs(ids[0]))
        assert membership.cluster_id == ids[0]
        assert await agreed_cluster_id(store, None, is_shared=True) == ids[0]


async def test_the_id_in_a_data_directory_becomes_that_of_a_new_cluster():
    tree = SharedTree()
    assert await agreed_cluster_id(tree.connect(), "known", is_shared=True) == "known"
    assert await agreed_cluster_id(tree.connect(), None, is_shared=True) == "known"


async def test_a_broker_alone_writes_no_cluster_id(embedded_store):
    assert await agreed_cluster_id(embedded_store, None, is_shared=False)
    assert await embedded_store.children("/") == []
