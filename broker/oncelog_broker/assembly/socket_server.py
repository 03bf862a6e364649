"""The listening sockets of one broker, and the connections that they accept.

The sockets are bound before the broker registers, since binding turns port 0 into an actual port, which the
registration names. The bound sockets accept no connections before `serve` is called.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from functools import partial

from oncelog_broker.assembly.settings import Settings
from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config import security_keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.listeners import (
    Listener,
    advertised_listeners,
    inter_broker_listener,
    listeners,
    with_bound_ports,
)
from oncelog_broker.metadata.membership.login_key import login_key
from oncelog_broker.metadata.membership.membership import ClusterMember
from oncelog_broker.metadata.model.image import ImageView
from oncelog_broker.metadata.stores.store import MetadataStore
from oncelog_broker.runtime.descriptors import descriptor_limit
from oncelog_broker.runtime.disk import Disk
from oncelog_broker.runtime.host import Host
from oncelog_broker.runtime.loop_budget import LoopBudget
from oncelog_broker.security.first_users import make_first_users, parse_first_users
from oncelog_broker.security.securities import Securities
from oncelog_broker.server.dispatch.dispatcher import Dispatcher
from oncelog_broker.server.dispatch.listener import SWEEP_SECONDS, Listeners
from oncelog_broker.server.net.connection_rates import ConnectionRates
from oncelog_broker.server.net.connections import Connections
from oncelog_broker.server.net.limits import Limits

logger = logging.getLogger(__name__)


class SocketServer:
    """The listening sockets of one broker. The object is created before all other parts, so that invalid listener
    settings are refused before the start changes anything.
    """

    def __init__(self, settings: Settings, host: Host, *, is_clustered: bool, shared: Sequence[Listener] = ()) -> None:
        """Raises InvalidConfig. Divides the file descriptors of the process, before the first log is opened. `shared`:
        the addresses on which all workers of this machine listen; empty without workers.
        """
        config = settings.current()
        self._config = config
        self._host = host
        self._advertised = advertised_listeners(config, socket.gethostname())
        inter_broker_listener(config)  # raises InvalidConfig if the inter-broker listener is missing
        self.securities = Securities(config, is_clustered=is_clustered)
        self.connections = Connections(
            _limits(config, divide_descriptors(config, host.disk)),
            LoopBudget(host.clock.monotonic),
            ConnectionRates(config, host.clock),
        )
        self._listeners = Listeners(host, self.connections)
        self._shared = shared

    async def bind(self) -> tuple[Listener, ...]:
        """Bind all listening sockets. Returns the listeners to register. Raises OSError, whose message says what to
        do."""
        bound, is_worker = {}, bool(self._shared)
        for listener in listeners(self._config):
            security = self.securities[listener.name]
            # The supervisor (the parent process of the workers) also keeps each worker's port bound, so that the worker
            # gets the same port after a restart.
            bound[listener.name] = await self._listeners.listen(listener, security, is_shared=is_worker)
        for listener in self._shared:
            await self._listeners.listen(listener, self.securities[listener.name], is_shared=True)
        return with_bound_ports(self._advertised, bound)

    async def learn_users(self, store: MetadataStore, member: ClusterMember, metadata: ImageView) -> None:
        """Load the users and keys for logins, after the broker has joined the cluster. Raises StoreUnavailable,
        OSError."""
        self.securities.begin(metadata, await login_key(store))
        first_users = parse_first_users(self._config[security_keys.SCRAM_FIRST_USERS])
        await member.patiently(partial(make_first_users, store, first_users))
        await self.securities.follow(self._host.tasks)

    async def serve(self, dispatcher: Dispatcher) -> None:
        """Accept connections, and pass their requests to `dispatcher`."""
        self._host.tasks.every("connection sweep", SWEEP_SECONDS, self._listeners.sweep)
        await self._listeners.start(dispatcher)

    async def close(self) -> None:
        """Stop accepting connections, send the responses that are already encoded, then close all connections. This
        method may be called twice.
        """
        await self._listeners.close()


def divide_descriptors(config: BrokerConfig, disk: Disk) -> int:
    """Divide the file descriptors of this process: limit the number that its logs and mapped files may use. Returns the
    number of descriptors that remain for connections.
    """
    max_connections = config[keys.MAX_CONNECTIONS]
    connections = disk.divide_descriptors(max_connections)
    # Log a warning only if the file descriptors are not enough for half of max.connections.
    if connections < max_connections // 2:
        logger.warning(
            "the limit of open files is much too low for max.connections",
            extra={"limit": descriptor_limit(), "connections": connections},
        )
    return connections


def _limits(config: BrokerConfig, descriptors: int) -> Limits:
    return Limits(
        max_connections=config[keys.MAX_CONNECTIONS],
        max_connections_per_ip=config[keys.MAX_CONNECTIONS_PER_IP],
        request_max_bytes=config[keys.SOCKET_REQUEST_MAX_BYTES],
        queued_max_request_bytes=config[keys.QUEUED_MAX_REQUEST_BYTES],
        queued_max_response_bytes=config[keys.QUEUED_MAX_RESPONSE_BYTES],
        idle_seconds=config[keys.CONNECTIONS_MAX_IDLE_MS] / 1000,
        connection_descriptors=descriptors,
        send_buffer_bytes=config[keys.SOCKET_SEND_BUFFER_BYTES],
        receive_buffer_bytes=config[keys.SOCKET_RECEIVE_BUFFER_BYTES],
    )
