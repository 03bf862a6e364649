"""All implementations of MetadataStore, for the contract tests; a new store for each test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.shared_tree import SharedTree

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.metadata.opening import configured_opening
from oncelog_broker.metadata.stores.embedded import EmbeddedStore
from oncelog_broker.metadata.stores.in_memory import MemoryTree
from oncelog_broker.metadata.stores.store import MetadataStore
from oncelog_broker.metadata.stores.supervised.store_server import StoreServer
from oncelog_broker.metadata.stores.supervised.supervised_store import SupervisedStore
from oncelog_broker.metadata.stores.zookeeper.zookeeper_store import ZooKeeperStore
from oncelog_broker.runtime.clock import SystemClock
from oncelog_broker.security.zookeeper_tls import tls_to_zookeeper

OpenStore = Callable[[], Awaitable[MetadataStore]]


NEEDS_JAVA = pytest.mark.zookeeper


@pytest.fixture(
    params=[
        "embedded",
        pytest.param("zookeeper", marks=NEEDS_JAVA),
        pytest.param("secured_zookeeper", marks=NEEDS_JAVA),
        "memory",
        "shared",
        "supervised",
    ]
)
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """A function that opens a session on one tree; the previous session of an embedded store must be closed first."""
    opened: list[MetadataStore] = []

    async def open_embedded() -> MetadataStore:
        opened.append(EmbeddedStore.open(tmp_path / "metadata.db"))
        return opened[-1]

    async def open_zookeeper() -> MetadataStore:
        connect = request.getfixturevalue("zookeeper")
        opened.append(await ZooKeeperStore.open(connect, session_timeout=10))
        return opened[-1]

    async def open_secured_zookeeper() -> MetadataStore:
        settings = request.getfixturevalue("secured_zookeeper").settings
        config = BrokerConfig.of({**settings, "zookeeper.session.timeout.ms": "10000"})
        opened.append(await configured_opening(config, tls_to_zookeeper(config)).open(str(tmp_path), SystemClock()))
        return opened[-1]

    memory, shared = MemoryTree(), SharedTree()

    async def open_memory() -> MetadataStore:
        opened.append(memory.connect())
        return opened[-1]

    async def open_shared() -> MetadataStore:
        opened.append(shared.connect())
        return opened[-1]

    served: list[StoreServer] = []

    async def open_supervised() -> MetadataStore:
        if not served:
            served.append(StoreServer(EmbeddedStore.open(tmp_path / "metadata.db")))
        opened.append(await SupervisedStore.open(await served[0].connect(), SystemClock()))
        return opened[-1]

    yield {
        "embedded": open_embedded,
        "zookeeper": open_zookeeper,
        "secured_zookeeper": open_secured_zookeeper,
        "memory": open_memory,
        "shared": open_shared,
        "supervised": open_supervised,
    }[request.param]
    for store in opened:
        await store.close()
    for server in served:
        server.close()
        await server.store.close()


@pytest.fixture
async def store(open_store: OpenStore) -> MetadataStore:
    return await open_store()
