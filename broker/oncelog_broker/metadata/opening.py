"""Which metadata store a broker has: ZooKeeper's where `zookeeper.connect` is set, else a file of its own.

A broker alone pays nothing for the other: kazoo is imported where it is used.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from oncelog_broker.config import zookeeper_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.metadata.embedded import EmbeddedStore
from oncelog_broker.metadata.incarnation import SESSION_FILE
from oncelog_broker.metadata.store import MetadataStore
from oncelog_broker.metadata.zk_access import MakeContext, configured_access
from oncelog_broker.runtime.clock import Clock

METADATA_FILE: Final = "metadata.db"
"""The embedded store, in the first log directory. The name is no topic-partition, so Kafka's tools pass it over."""


async def open_store(config: BrokerConfig, home: str, clock: Clock, tls: MakeContext | None = None) -> MetadataStore:
    """`home`: the first log directory. `tls`: for connections to ZooKeeper.

    StoreFileError, StoreUnavailable, InvalidConfig: with a message for people.
    """
    connect = config[keys.ZOOKEEPER_CONNECT]
    if connect is None:
        check_is_no_members(home)
        return EmbeddedStore.open(Path(home) / METADATA_FILE)
    from oncelog_broker.metadata.zookeeper import ZooKeeperStore

    access = configured_access(config, tls)
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


def check_is_no_members(home: str) -> None:
    """Raises InvalidConfig where the directory belongs to a member of a cluster: alone, its broker would serve records
    that the cluster has left behind, and take others that the cluster never sees."""
    trace = os.path.join(home, SESSION_FILE)
    if os.path.exists(trace):
        raise InvalidConfig(
            f"{home} belongs to a broker of a cluster with ZooKeeper: set zookeeper.connect. To make it a cluster of "
            f"its own for good, with what it has, delete {trace} first."
        )


def described_store(config: BrokerConfig) -> str:
    """For the line that says that a broker is ready."""
    connect = config[keys.ZOOKEEPER_CONNECT]
    return "embedded metadata" if connect is None else f"metadata in ZooKeeper at {connect}"


def store_of(config: BrokerConfig) -> str:
    """Where the metadata is, for people who look for it."""
    connect = config[keys.ZOOKEEPER_CONNECT]
    return os.path.join(config.log_dirs[0], METADATA_FILE) if connect is None else f"ZooKeeper at {connect}"
