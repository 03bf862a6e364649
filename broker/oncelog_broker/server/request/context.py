"""Who asks in which version, what they may do, and how a handler answers them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.listeners import has_brokers_only_listener, inter_broker_listener
from oncelog_broker.coordinator.client import Client
from oncelog_broker.metadata.membership import feature_levels
from oncelog_broker.metadata.model.cache import MetadataCache
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.steps import Steps, run_steps
from oncelog_broker.runtime.tasks import Deadlines, Tasks
from oncelog_broker.security.authorizer.authorizer import ALL_OPERATIONS, Rights, StandardAuthorizer
from oncelog_broker.security.authorizer.rules import Rule
from oncelog_broker.server.net.answer_queue import Slot
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_protocol.acls import CLUSTER_NAME, ResourceType
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import KafkaError

R = TypeVar("R")


class NamedTopic(Protocol):
    """A topic of a request."""

    name: str


T = TypeVar("T", bound=NamedTopic)

UNCOUNTED: Final = nullcontext()
TOPICS_PER_STEP: Final = 200
"""How many topics are authorized in one slice: some milliseconds if their verdicts are not cached yet."""
LONG_POLLS: Final = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""Requests that wait for what others do, and whose effects, if they have any, are done by then."""


class CommonServices(Protocol):
    """What the context itself needs, and any handler may reach. What a room of handlers needs beside: `services`."""

    config: BrokerConfig
    """The present configuration; a change of dynamic settings replaces it."""
    is_clustered: bool
    """Whether there may be other brokers."""
    clock: Clock
    tasks: Tasks
    slices: Slices
    at_work: asyncio.Semaphore
    """queued.max.requests: how many requests that take several steps are at work at a time."""
    deadlines: Deadlines
    metadata: MetadataCache
    authorizer: StandardAuthorizer | None
    """None: everybody may do everything."""

    @property
    def image(self) -> ClusterImage:
        """The cluster as this broker knows it now."""

    @property
    def node_id(self) -> int:
        """The id of this broker."""


S = TypeVar("S", bound=CommonServices, covariant=True)


class RequestContext(Generic[S]):
    """What a handler may know beside its request: who asks, and the services of its room. Valid while the request is
    handled."""

    __slots__ = (
        "_effects_are_done",
        "_refusals",
        "_slot",
        "api_key",
        "client_id",
        "connection",
        "correlation_id",
        "is_unread",
        "services",
        "version",
    )

    is_passed_on = False
    """Whether another broker passed the request on (KIP-590)."""

    def __init__(
        self,
        services: S,
        connection: BrokerConnection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        self.services = services
        self.connection = connection
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.is_unread = False
        """Whether the request is decoded in slices, and its handler does not have it yet."""
        self._effects_are_done = False
        self._refusals = 0
        self._slot: Slot | None = None

    @property
    def client(self) -> Client:
        """The client, in a form that may be shown to other users."""
        return Client(self.client_id or "", f"/{self.connection.client_host}")

    @property
    def is_for_brokers(self) -> bool:
        """Whether what brokers alone may ask is served here: on the inter-broker listener, if that is one of its own.
        Where nobody logs in, a listener for everybody cannot tell brokers from others."""
        config = self.services.config
        return not has_brokers_only_listener(config) or self.connection.listener == inter_broker_listener(config)

    # --- what who asks may do, in words of `security/authorizer/rules.py`

    def may(self, rule: Rule, name: str | None = CLUSTER_NAME) -> bool:
        """Whether they may, by a rule of the request's API, do that with the resource of that name. None: with any
        resource of the rule's type that there is or might be."""
        authorizer = self.services.authorizer
        if authorizer is None:
            return True
        rights = self.connection.rights
        if rights is None or rights.epoch is not authorizer.epoch:
            rights = self._rights(authorizer)
        if (rule.kind, name) in rights.allowed:
            return True
        if authorizer.may(rights, rule, name, self._refusals):
            return True
        self._refusals += rule.is_told
        return False

    def _rights(self, authorizer: StandardAuthorizer) -> Rights:
        connection = self.connection
        connection.rights = authorizer.rights_of(connection.principal, connection.client_host)
        return connection.rights

    def require(self, rule: Rule, name: str = CLUSTER_NAME) -> None:
        """As `may`; raises KafkaError, as the rule says, where they may not."""
        if not self.may(rule, name):
            raise KafkaError(rule.refused)

    def divided(self, rule: Rule, topics: Iterable[T]) -> tuple[list[T], list[T]]:
        """Divide topics into those that the principal may use, and the others. For few; see `divided_in_steps`."""
        return run_steps(self.divided_in_steps(rule, topics))

    def divided_in_steps(self, rule: Rule, topics: Iterable[T]) -> Steps[tuple[list[T], list[T]]]:
        """As `divided`, for any number of topics."""
        verdicts: dict[str, bool] = {}
        divided: tuple[list[T], list[T]] = ([], [])
        for number, topic in enumerate(topics, 1):
            name = topic.name
            if name not in verdicts:
                verdicts[name] = self.may(rule, name)
            divided[not verdicts[name]].append(topic)
            if number % TOPICS_PER_STEP == 0:
                yield None
        return divided

    def may_as_broker(self, rule: Rule) -> bool:
        """Whether what brokers alone may ask is served, here and for them."""
        return self.is_for_brokers and self.may(rule)

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """What they may do with the resource, a bit for each operation (KIP-430)."""
        authorizer = self.services.authorizer
        if authorizer is None:
            return ALL_OPERATIONS[kind]
        return authorizer.operations(self._rights(authorizer), kind, name)

    def mutations(self, partitions: int) -> AbstractContextManager[None]:
        """Return a context in which this many partitions are created or deleted; they count against the client's
        controller mutation quota. Leaving it with a KafkaError takes the count back. Entering it raises KafkaError
        THROTTLING_QUOTA_EXCEEDED if the quota is already used up."""
        return UNCOUNTED

    # --- how a handler answers: with its response, with None (acks=0), or with one of these

    def in_slices(self, work: Steps[R]) -> Answer[R]:
        """What `work` returns, a slice at a time if it takes long; given up when the client goes."""
        return self.services.slices.run(work)

    def answered_in_slices(self, work: Steps[Answer[R]]) -> Answer[R]:
        """As `in_slices`, where what `work` returns may come later still."""
        answer: Answer[Any] = self.services.slices.run(work)
        return then(answer, lambda answer: answer)

    def in_a_task(self, work: Coroutine[Any, Any, R]) -> asyncio.Future[R]:
        """What a coroutine returns. A change that has begun is finished, whether the client stays or goes."""
        return self.services.tasks.answer(f"request {self.api_key} of {self.client_id}", self._at_work(work))

    async def _at_work(self, work: Coroutine[Any, Any, R]) -> R:
        async with self.services.at_work:
            return await work

    # --- what may go on meanwhile

    def begins(self) -> None:
        """Its handler gets the request: from now on it may be given up when the client goes."""
        self.is_unread = False
        if self._slot is not None:
            self.connection.begins(self._slot)

    def effects_are_done(self) -> None:
        """Nothing of this request is left but to wait for its answer: the next one of its connection may begin."""
        self._effects_are_done = True
        if self._slot is not None:
            self.connection.let_next_in(self._slot)

    def wait_for(self, answer: asyncio.Future[Any], *, reads_frame: bool) -> Slot:
        """A place for the answer to this request, which comes later. `reads_frame`: when it is decoded something is
        still to be read from its frame, which must stay as it is."""
        done = self._effects_are_done
        self._slot = self.connection.wait_for(
            answer,
            reads_frame=(reads_frame or self.is_unread) and not done,
            holds_back=not done,
            is_long_poll=self.api_key in LONG_POLLS,
            is_unread=self.is_unread,
        )
        return self._slot


AnyContext: TypeAlias = RequestContext[CommonServices]
"""The context of a handler that needs only the services common to all handlers."""


def level_in_force(context: AnyContext) -> int:
    """The level of `oncelog.version` that all brokers know; a broker without others has its own highest."""
    services = context.services
    return feature_levels.level_in_force(services.image) if services.is_clustered else feature_levels.HIGHEST
