"""A simulated world: its surroundings, brokers and clients, all created from one plan."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog_simulation.machine import BrokerMachine, ClientHost
from oncelog_simulation.plan import Plan, Strike
from oncelog_simulation.surroundings import Surroundings

SETTINGS: Final[Mapping[str, str]] = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "zookeeper.connect": "store-1:2181,store-2:2181,store-3:2181",
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "4000",
}
"""Settings of the brokers, unless the plan overrides them."""


class Violation(NamedTuple):
    """A rule that the run has broken, with the judge that found it and a description."""

    at: float
    judge: str
    what: str


class World(Surroundings):
    """The world of one run of a plan. Create the world, run coroutines in its loop (`run.run` does so), and call
    `end`.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.seed)
        self.plan = plan
        self.network.late_share = plan.late_share
        self.store.tick_seconds *= plan.leisure
        settings = {**SETTINGS, **_replicated(plan.brokers), **plan.settings}
        self.brokers = {
            machine.name: machine
            for machine in (
                BrokerMachine(self, number, settings, plan.directories, plan.leisure)
                for number in range(1, plan.brokers + 1)
            )
        }
        """The broker machines by name, in the order of their numbers."""
        self.clients: dict[str, ClientHost] = {}
        self.calm = asyncio.Event()
        """An event that is set when the faults are over and all brokers run again."""
        self.outsiders: set[str] = set()
        """Names of hosts that run code of others, such as a user's service, whose logged errors break no rule."""
        self.violations: list[Violation] = []
        self.striking: dict[Strike, None] = {}
        """The strikes that have an effect now."""
        self.struck: dict[str, int] = {}
        """The number of strikes that had an effect, by kind of fault."""
        self.assigned: Mapping[str, list[int]] | None = None
        """For each host, the owners (by `id`) of the attributes of partitions and logs that its processes have set;
        None if they are not noted (`judges.last_look`).
        """
        self.rotted: dict[str, set[str]] = {}
        """For each broker on whose disk a bit has changed, the names of the damaged logs, until the disk is
        replaced.
        """

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(machine.bootstrap_server for machine in self.brokers.values())

    def client(self, name: str) -> ClientHost:
        """Return the host with this name, which is created at first use."""
        found = self.clients.get(name)
        if found is None:
            found = self.clients[name] = ClientHost(self, len(self.clients) + 1, name)
        return found

    def violate(self, judge: str, what: str) -> None:
        """Record that a judge has found a broken rule."""
        self.note(judge, f"VIOLATION: {what}")
        self.violations.append(Violation(self.now, judge, what))

    def end(self) -> None:
        """Release all objects, including dead processes."""
        for machine in (*self.brokers.values(), *self.clients.values()):
            machine.forget()
        super().end()

    def count(self, fault: str) -> None:
        """Count a strike of this fault that had an effect."""
        self.struck[fault] = self.struck.get(fault, 0) + 1


def _replicated(brokers: int) -> dict[str, str]:
    if brokers >= 3:
        return {}
    replicas = str(brokers)
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "min.insync.replicas": "1",
    }
