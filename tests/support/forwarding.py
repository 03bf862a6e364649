"""Two brokers that share one metadata tree in memory. One of the brokers is the controller; function calls connect the
brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

from tests.support.controlled_brokers import ControlledBrokers

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.metadata.model import reader
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.image import NO_CONTROLLER, ClusterImage
from oncelog_broker.replication.peers import PeerUnavailable, Purpose
from oncelog_broker.runtime.answers import settled
from oncelog_broker.runtime.clock import SystemClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.security.authorizer.rules import Rule
from oncelog_broker.security.principal import Principal
from oncelog_broker.server.net.header_cache import PREFIX
from oncelog_broker.server.request.context import RequestContext
from oncelog_broker.server.request.forwarding import pass_on
from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey
from oncelog_protocol.codec import codec
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse

CONTROLLER, OTHER = 1, 2
SETTINGS = {
    "listeners": "BROKERS://127.0.0.1:1,CLIENTS://127.0.0.1:2",
    "listener.security.protocol.map": "BROKERS:PLAINTEXT,CLIENTS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


class Authorizer:
    """The authorizer for a user who has exactly the rights in `rights`."""

    def __init__(self, *rights: tuple[Rule, str]) -> None:
        self.epoch = object()
        self._rights = {(rule.kind, name) for rule, name in rights}

    def rights_of(self, *_: object) -> Any:
        return SimpleNamespace(epoch=self.epoch, allowed=self._rights)

    def may(self, *_: object) -> bool:
        return False


class PassedOn(NamedTuple):
    """A request that reached the controller inside an Envelope request."""

    api: ApiKey
    principal: bytes | None


class _Context(RequestContext):
    """A request context that records what is charged to the client's controller mutation quota: broker id, number of
    partitions, and the request's error code (None after success).
    """

    noted: list[tuple[int, int, ErrorCode | None]]

    @contextmanager
    def mutations(self, partitions: int) -> Iterator[None]:  # type: ignore[override]
        try:
            yield
        except KafkaError as error:
            self.noted.append((self.services.node_id, partitions, error.code))
            raise
        self.noted.append((self.services.node_id, partitions, None))


class Brokers:
    """`ask` sends a request as a client does. `sent` counts the forwarded Envelope requests; if `failure` is set, these
    requests fail with that exception.
    """

    @classmethod
    async def start(cls) -> Brokers:
        made = cls()
        made._cluster = ControlledBrokers()
        for broker in (CONTROLLER, OTHER):
            await made._cluster.start(broker)
        term = await made._cluster.control(CONTROLLER)
        made._term = {CONTROLLER: term}
        made._cache = await MetadataCache.start(made._cluster.admin)
        made._topics = TopicController(made._cluster.sessions[CONTROLLER], lambda: made.term(CONTROLLER))
        for node_id in (CONTROLLER, OTHER):
            made._services[node_id] = made._services_of(node_id)
        return made

    def __init__(self) -> None:
        self._cluster: ControlledBrokers
        self._cache: MetadataCache
        self._topics: TopicController
        self._term: dict[int, Any] = {}
        self._tasks = Tasks()
        self._services: dict[int, Any] = {}
        self._controller = {CONTROLLER: CONTROLLER, OTHER: CONTROLLER}
        self.passed_on: list[PassedOn] = []
        self.sent = 0
        self.timeouts: list[float] = []
        self.failure: PeerUnavailable | None = None
        self.mutations: list[tuple[int, int, ErrorCode | None]] = []

    async def stop(self) -> None:
        await self._tasks.close()

    async def image(self) -> ClusterImage:
        return await reader.read_image(self._cluster.admin)

    def term(self, node_id: int) -> Any:
        if node_id not in self._term:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return self._term[node_id]

    def depose(self) -> None:
        """Resign as controller in favour of the other broker, which does not know this yet."""
        self._term.clear()
        self._controller[CONTROLLER] = OTHER

    def forget_controller(self) -> None:
        self._controller = dict.fromkeys(self._controller, NO_CONTROLLER)

    def authorize(self, node_id: int, authorizer: Authorizer) -> None:
        self._services[node_id].authorizer = authorizer

    def context(self, node_id: int, api: ApiKey, version: int, listener: str = "BROKERS") -> RequestContext:
        connection: Any = SimpleNamespace(
            listener=listener, rights=None, principal=Principal("User", "client"), client_host="127.0.0.1"
        )
        made = _Context(self._services[node_id], connection, api, version, 0, "test")
        made.noted = self.mutations
        return made

    async def ask(self, node_id: int, api: ApiKey, version: int, request: Any) -> Any:
        """Send a request as a client that uses the listener for clients."""
        context = self.context(node_id, api, version, "CLIENTS")
        return await settled(SERVED[api].load()(request, context))

    async def pass_on(self, request: Any) -> Any:
        return await pass_on(request, CONTROLLER, self.context(OTHER, ApiKey.CREATE_TOPICS, 7), request.timeout_ms)

    async def send(
        self, broker_id: int, request: EnvelopeRequest, *, purpose: Purpose, timeout: float
    ) -> EnvelopeResponse:
        """Send a request from the other broker to the controller, as `Peers` does."""
        assert (broker_id, purpose) == (CONTROLLER, Purpose.FORWARDING)
        self.sent += 1
        self.timeouts.append(timeout)
        if self.failure is not None:
            raise self.failure
        received = codec(EnvelopeRequest, 0).decode(codec(EnvelopeRequest, 0).encode(request))
        api, _, _ = PREFIX.unpack_from(received.request_data)
        self.passed_on.append(PassedOn(ApiKey(api), received.request_principal))
        context = self.context(CONTROLLER, ApiKey.ENVELOPE, 0)
        answer = await settled(SERVED[ApiKey.ENVELOPE].load()(received, context))
        return codec(EnvelopeResponse, 0).decode(codec(EnvelopeResponse, 0).encode(answer))

    def _services_of(self, node_id: int) -> Any:
        brokers = self

        class Services(SimpleNamespace):
            @property
            def image(self) -> ClusterImage:
                image = brokers._cache.image
                return image.with_controller(brokers._controller[node_id])

        async def opened(_: str) -> None:
            return None

        return Services(
            authorizer=None,
            config=BrokerConfig.of(SETTINGS),
            clock=SystemClock(),
            tasks=self._tasks,
            slices=Slices(SystemClock(), self._tasks),
            at_work=asyncio.Semaphore(10),
            node_id=node_id,
            metadata=self._cache,
            replicas=SimpleNamespace(until_opened=opened),
            elector=SimpleNamespace(term=lambda: self.term(node_id)),
            topics=self._topics,
            peers=self,
        )
