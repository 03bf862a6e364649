"""Calls a request handler without connection, broker or disk; provides the request's context, and coordinators that
need no event loop.

`asked` creates the context of a request. A coordinator is one state machine (`MachineRuntime`) whose records are
replayed
immediately.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.share.share_group import ShareGroup
from oncelog_broker.coordinator.shard import Waiter
from oncelog_broker.coordinator.transaction.config import TransactionConfig
from oncelog_broker.coordinator.transaction.machine import TransactionMachine
from oncelog_broker.metadata.model.image import Broker, ClusterImage, Endpoint, PartitionState, Topic
from oncelog_broker.runtime.answers import settled
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.security.authorizer.rules import Rule
from oncelog_broker.server.request.context import RequestContext
from oncelog_protocol.acls import CLUSTER_NAME
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError

M = TypeVar("M")

LISTENER = "PLAINTEXT"
CLIENT = Client("test", "/127.0.0.1")
START_MS = 1_700_000_000_000


class AskedContext(RequestContext[Any]):
    """The context of a request whose client has all rights except for `refused`, a collection of rules and of (rule,
    resource name) pairs.
    """

    __slots__ = ("refused",)

    refused: Collection[Any]

    def may(self, rule: Rule, name: str | None = CLUSTER_NAME) -> bool:
        return rule not in self.refused and (rule, name) not in self.refused


def asked(
    api: ApiKey, version: int, *, refused: Collection[Any] = (), gate: Any = None, **services: Any
) -> AskedContext:
    """Create the context of a request of the client "test".

    `services` adds or replaces services that the handler may use.
    """
    clock, tasks = ManualClock(), Tasks()
    parts: dict[str, Any] = {
        "authorizer": object() if refused else None,
        "clock": clock,
        "tasks": tasks,
        "slices": Slices(clock, tasks),
        "at_work": asyncio.Semaphore(10),
        "image": ClusterImage("cluster"),
        "node_id": 1,
        "is_clustered": False,
    }
    connection: Any = SimpleNamespace(listener=LISTENER, client_host="127.0.0.1", gate=gate)
    context = AskedContext(SimpleNamespace(**parts | services), connection, api, version, 0, "test")
    context.refused = refused
    return context


async def answered(handle: Callable[..., Any], request: Any, context: AskedContext) -> Any:
    """Call the handler and return its response; wait up to 10 s if the handler responds later."""
    async with asyncio.timeout(10):
        return await settled(handle(request, context))


def image_with(*topics: str, partitions: int = 2, leader: int = 1, **more: Any) -> ClusterImage:
    """Return an image with the brokers 1 and 2 and these topics, led by `leader`; topic ids are derived from topic
    names.
    """
    endpoints = {broker: Endpoint(LISTENER, f"host-{broker}", 9092) for broker in (1, 2)}
    brokers = {broker: Broker(broker, 1, (endpoint,)) for broker, endpoint in endpoints.items()}
    made = {
        name: Topic(
            name, topic_id(name), dict.fromkeys(range(partitions), PartitionState((1, 2), (1, 2), leader, 3, 0))
        )
        for name in topics
    }
    return ClusterImage(
        "cluster", brokers, made, {topic.topic_id: name for name, topic in made.items()}, controller_id=1, **more
    )


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")


class MachineRuntime(Generic[M]):
    """Implements the methods of `CoordinatorRuntime` that handlers call, for one partition of the internal topic. With
    a `refusal`, every request fails
    with that error.
    """

    def __init__(self, machine: M) -> None:
        self.machine: Any = machine
        self.is_loading = False
        self.refusal: KafkaError | None = None
        self.logged: list[Any] = []
        self.ends: list[Any] = []

    def refuse(self, code: ErrorCode) -> None:
        self.refusal = KafkaError(code)

    def write(self, key: str, operation: Callable[[M, Any], Any], failed: Callable[[KafkaError], Any]) -> Any:
        waiter: Waiter[Any] = Waiter(failed)
        try:
            if self.refusal is not None:
                raise self.refusal
            effects = operation(self.machine, waiter)
        except KafkaError as error:
            return failed(error)
        self._carry_out(effects)
        return waiter.outcome()

    def read(self, key: str, query: Callable[[M], Any], failed: Callable[[KafkaError], Any]) -> Any:
        try:
            if self.refusal is not None:
                raise self.refusal
            return query(self.machine)
        except KafkaError as error:
            return failed(error)

    def _carry_out(self, effects: Any) -> None:
        for record in effects.records:
            self.logged.append(record)
            producer_id = -1 if effects.producer is None else effects.producer[0]
            self.machine.replay(record, len(self.logged), producer_id)
        for change in effects.changes:
            change()
        for waiter, response in effects.replies:
            waiter.answer(response)
        self.ends += effects.ends

    def fire(self, timer: Any) -> None:
        """Fire a timer of the machine."""
        self._carry_out(self.machine.on_timer(timer))

    def machines(self) -> list[M]:
        return [self.machine]

    def partition_of(self, key: str) -> int | None:
        return 0


def group_coordinator(machine: GroupMachine | None = None) -> Any:
    """Return a replacement for `services.groups` with `machine`; by default the machine has no groups and gives members
    the ids m-1, m-2 and so on.
    """
    ids = iter(range(1, 1000))
    machine = machine or GroupMachine(GroupConfig(), lambda: START_MS, lambda: f"m-{next(ids)}")
    share = SimpleNamespace(is_share_group=lambda group_id: isinstance(machine.groups.get(group_id), ShareGroup))
    return SimpleNamespace(runtime=MachineRuntime(machine), share=share)


def transaction_machine() -> MachineRuntime[TransactionMachine]:
    return MachineRuntime(TransactionMachine(TransactionConfig(), lambda: START_MS, lambda: 0.0))
