"""The context of a request: its sender, version and rights, and the ways in which a handler responds."""

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
    """A topic that a request names."""

    name: str


T = TypeVar("T", bound=NamedTopic)

UNCOUNTED: Final = nullcontext()
TOPICS_PER_STEP: Final = 200
"""The number of topics whose authorization is checked in one slice. A slice takes some milliseconds if the authorizer's
decisions are not cached yet.
"""
LONG_POLLS: Final = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""Types of requests that wait for actions of other clients. When the wait begins, such a request has already had all
its effects.
"""


class CommonServices(Protocol):
    """The parts of the broker that the request context needs, and that any handler may use. The `services` module of
    each subpackage of handlers declares additional parts.
    """

    config: BrokerConfig
    """The current configuration; a change of dynamic settings replaces this object."""
    is_clustered: bool
    """Whether the cluster may have other brokers."""
    clock: Clock
    tasks: Tasks
    slices: Slices
    at_work: asyncio.Semaphore
    """Limits the concurrent requests that take several slices of work (queued.max.requests)."""
    deadlines: Deadlines
    metadata: MetadataCache
    authorizer: StandardAuthorizer | None
    """The authorizer, which decides by ACLs; None means that every client may do everything."""

    @property
    def image(self) -> ClusterImage:
        """The cluster metadata that this broker has now."""

    @property
    def node_id(self) -> int:
        """The id of this broker."""


S = TypeVar("S", bound=CommonServices, covariant=True)


class RequestContext(Generic[S]):
    """The context of one request, for its handler: the sender, and the services of the handler's subpackage.
    The context is valid while the request is handled.
    """

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
    """Whether another broker forwarded the request (KIP-590)."""

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
        """Whether the request is decoded in slices, and has not been passed to its handler yet."""
        self._effects_are_done = False
        self._refusals = 0
        self._slot: Slot | None = None

    @property
    def client(self) -> Client:
        """A description of the client that may be shown to other users."""
        return Client(self.client_id or "", f"/{self.connection.client_host}")

    @property
    def is_for_brokers(self) -> bool:
        """Whether requests that only brokers may send are served on this connection: on the inter-broker listener, if
        it is a separate listener. Without authentication, a shared listener cannot distinguish brokers from other
        clients.
        """
        config = self.services.config
        return not has_brokers_only_listener(config) or self.connection.listener == inter_broker_listener(config)

    # --- methods that check the rights of the sender (`security/authorizer/rules.py`) ---------------------------------

    def may(self, rule: Rule, name: str | None = CLUSTER_NAME) -> bool:
        """Return whether the sender may use the resource with this name, by a rule of the request's API. A name of None
        means any resource of the rule's type, existing or not.
        """
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
        """Check that the sender may use the resource with this name; raises the KafkaError of the rule if the sender
        may not.
        """
        if not self.may(rule, name):
            raise KafkaError(rule.refused)

    def divided(self, rule: Rule, topics: Iterable[T]) -> tuple[list[T], list[T]]:
        """Divide topics into topics that the sender may use, and other topics. Use this method for a few topics only;
        `divided_in_steps` divides many topics in slices of work.
        """
        return run_steps(self.divided_in_steps(rule, topics))

    def divided_in_steps(self, rule: Rule, topics: Iterable[T]) -> Steps[tuple[list[T], list[T]]]:
        """Divide any number of topics into those that the sender may use, and the rest, in slices of work."""
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
        """Return whether a request that only brokers may send is served, on this listener and for this sender."""
        return self.is_for_brokers and self.may(rule)

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the operations that the sender may do on the resource, as one bit each (KIP-430)."""
        authorizer = self.services.authorizer
        if authorizer is None:
            return ALL_OPERATIONS[kind]
        return authorizer.operations(self._rights(authorizer), kind, name)

    def mutations(self, partitions: int) -> AbstractContextManager[None]:
        """Return a context in which this many partitions are created or deleted; these partitions count against the
        client's controller mutation quota. Leaving the context with a KafkaError subtracts the partitions from the
        quota usage again. Entering the context raises KafkaError THROTTLING_QUOTA_EXCEEDED if the client has already
        exceeded the quota.
        """
        return UNCOUNTED

    # --- how a handler responds: with its response, with None (acks=0), or with the result of one of the methods below

    def in_slices(self, work: Steps[R]) -> Answer[R]:
        """Return the result of `work`, computed in slices if it takes long; a disconnect of the client cancels the
        work.
        """
        return self.services.slices.run(work)

    def answered_in_slices(self, work: Steps[Answer[R]]) -> Answer[R]:
        """Return the result of `work`, computed in slices if it takes long; the result may itself be a future."""
        answer: Answer[Any] = self.services.slices.run(work)
        return then(answer, lambda answer: answer)

    def in_a_task(self, work: Coroutine[Any, Any, R]) -> asyncio.Future[R]:
        """Run a coroutine as a task, and return its result. A disconnect of the client does not cancel a change that
        has begun.
        """
        return self.services.tasks.answer(f"request {self.api_key} of {self.client_id}", self._at_work(work))

    async def _at_work(self, work: Coroutine[Any, Any, R]) -> R:
        async with self.services.at_work:
            return await work

    # --- methods that tell the connection how far the request is ------------------------------------------------------

    def begins(self) -> None:
        """Record that the request is decoded and passed to its handler; from now on a disconnect of the client may
        cancel the request.
        """
        self.is_unread = False
        if self._slot is not None:
            self.connection.begins(self._slot)

    def effects_are_done(self) -> None:
        """Record that all effects of this request are done and only its response is pending: the next request of its
        connection may begin.
        """
        self._effects_are_done = True
        if self._slot is not None:
            self.connection.let_next_in(self._slot)

    def wait_for(self, answer: asyncio.Future[Any], *, reads_frame: bool) -> Slot:
        """Reserve the slot for the response to this request, which comes later. If `reads_frame` is True, the decoded
        request still reads from its frame, so the frame must stay unchanged.
        """
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
"""The context of a handler that needs only CommonServices."""


def level_in_force(context: AnyContext) -> int:
    """Return the finalized level of `oncelog.version`, which every broker of the cluster supports; without a cluster,
    return this broker's highest level.
    """
    services = context.services
    return feature_levels.level_in_force(services.image) if services.is_clustered else feature_levels.HIGHEST
