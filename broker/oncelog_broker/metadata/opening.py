"""Which metadata store a broker has: ZooKeeper's where `zookeeper.connect` is set, else a file of its own.

A broker alone pays nothing for the other: kazoo is imported where it is used.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from oncelog_broker.config import zookeeper_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.metadata.embedded import EmbeddedStore
from oncelog_broker.metadata.store import MetadataStore
from oncelog_broker.metadata.zk_access import MakeContext, configured_access
from oncelog_broker.runtime.clock import Clock

METADATA_FILE: Final = "metadata.db"
"""The embedded store, in the first log directory unless it lies in another one. The name is no topic-partition, so
Kafka's tools pass it over."""

_log = logging.getLogger(__name__)


async def open_store(config: BrokerConfig, home: str, clock: Clock, tls: MakeContext | None = None) -> MetadataStore:
    """`home`: the data directory that the embedded store lies in, or is to lie in. `tls`: for connections to ZooKeeper.

    StoreFileError, StoreUnavailable, InvalidConfig: with a message for people.
    """
    connect = config[keys.ZOOKEEPER_CONNECT]
    if connect is None:
        return EmbeddedStore.open(Path(home) / METADATA_FILE)
    from oncelog_broker.metadata.zookeeper import ZooKeeperStore

    access = configured_access(config, tls)
    if access.identity is not None and access.tls is None:
        _log.warning("the broker's password for ZooKeeper can be read on the line", extra={"servers": connect})
    timeout_ms = config[keys.ZOOKEEPER_SESSION_TIMEOUT_MS]
    connection_timeout_ms = config[keys.ZOOKEEPER_CONNECTION_TIMEOUT_MS] or timeout_ms
    try:
        return await ZooKeeperStore.open(
            connect,
            session_timeout=timeout_ms / 1000,
            connection_timeout=connection_timeout_ms / 1000,
            clock=clock,
            access=access,
        )
    except ValueError as error:
        raise InvalidConfig(str(error)) from error


def described_store(config: BrokerConfig) -> str:
    """For the line that says that a broker is ready."""
    connect = config[keys.ZOOKEEPER_CONNECT]
    return "embedded metadata" if connect is None else f"metadata in ZooKeeper at {connect}"
