"""Opens a broker's metadata store: ZooKeeper if `zookeeper.connect` is set, the store of its supervisor if the broker
is one of several workers, otherwise a local file.

A broker without ZooKeeper need not load the ZooKeeper client: kazoo is imported only where it is used.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from oncelog_broker.config import zookeeper_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.identity.note import StoreKind
from oncelog_broker.metadata.stores.embedded import EmbeddedStore
from oncelog_broker.metadata.stores.store import MetadataStore
from oncelog_broker.metadata.stores.zookeeper.access import MakeContext, ZooKeeperAccess, configured_access
from oncelog_broker.runtime.clock import Clock

METADATA_FILE: Final = "metadata.db"
"""The file of the embedded store, in the first log directory unless another log directory already has it. The name does
not look like a topic partition, so Kafka's tools ignore the file.
"""

_log = logging.getLogger(__name__)


class StoreOpening(Protocol):
    """Opens the metadata store of a starting broker. `MemoryTree` (the store for tests) implements this protocol,
    too."""

    @property
    def kind(self) -> StoreKind:
        """The kind of store, as written to the identity notes in the data directories."""

    def place(self, home: str) -> str:
        """Return the location of the store for messages: a path or a connect string. `home` is the directory with the
        embedded store.
        """

    async def open(self, home: str, clock: Clock) -> MetadataStore:
        """Open the metadata store. Raises StoreFileError, StoreUnavailable, InvalidConfig, with a message for the
        operator.
        """


class EmbeddedOpening:
    """Opens the store in a file in the data directory."""

    kind = StoreKind.EMBEDDED

    def place(self, home: str) -> str:
        return os.path.join(home, METADATA_FILE)

    async def open(self, home: str, clock: Clock) -> MetadataStore:
        return EmbeddedStore.open(Path(self.place(home)))


class SupervisedOpening:
    """Opens the metadata store of a worker: a session in the store that the worker's supervisor serves."""

    kind = StoreKind.SUPERVISED

    def __init__(self, descriptor: int, place: str, on_gone: Callable[[], None]) -> None:
        """`descriptor`: the file descriptor of the connection to the supervisor. `place`: the path of the supervisor's
        store, for messages. `on_gone`: called when the supervisor has ended.
        """
        self._descriptor = descriptor
        self._place = place
        self._on_gone = on_gone

    def place(self, home: str) -> str:
        return self._place

    async def open(self, home: str, clock: Clock) -> MetadataStore:
        import socket

        from oncelog_broker.metadata.stores.supervised.supervised_store import SupervisedStore

        return await SupervisedStore.open(socket.socket(fileno=self._descriptor), clock, self._on_gone)


class ZooKeeperOpening:
    """Opens a session with the servers in `zookeeper.connect`."""

    kind = StoreKind.ZOOKEEPER

    def __init__(self, config: BrokerConfig, connect: str, access: ZooKeeperAccess) -> None:
        self._config = config
        self._connect = connect
        self._access = access

    def place(self, home: str) -> str:
        return self._connect

    async def open(self, home: str, clock: Clock) -> MetadataStore:
        from oncelog_broker.metadata.stores.zookeeper.zookeeper_store import ZooKeeperStore

        if self._access.identity is not None and self._access.tls is None:
            _log.warning(
                "the broker sends its password for ZooKeeper without encryption: set zookeeper.ssl.client.enable",
                extra={"servers": self._connect},
            )
        timeout_ms = self._config[keys.ZOOKEEPER_SESSION_TIMEOUT_MS]
        connection_timeout_ms = self._config[keys.ZOOKEEPER_CONNECTION_TIMEOUT_MS] or timeout_ms
        try:
            return await ZooKeeperStore.open(
                self._connect,
                session_timeout=timeout_ms / 1000,
                connection_timeout=connection_timeout_ms / 1000,
                clock=clock,
                access=self._access,
            )
        except ValueError as error:
            raise InvalidConfig(str(error)) from error


def configured_opening(config: BrokerConfig, tls: MakeContext | None = None) -> StoreOpening:
    """Return the `StoreOpening` for the store that `config` names. `tls` creates the TLS context for connections to
    ZooKeeper. Raises InvalidConfig.
    """
    connect = config[keys.ZOOKEEPER_CONNECT]
    return EmbeddedOpening() if connect is None else ZooKeeperOpening(config, connect, configured_access(config, tls))


def described_store(config: BrokerConfig) -> str:
    """Describe the metadata store for the log line that reports that the broker is ready."""
    connect = config[keys.ZOOKEEPER_CONNECT]
    return "embedded metadata" if connect is None else f"metadata in ZooKeeper at {connect}"
