"""Defines the cells for the newer protocols on three brokers with replicas: what works in the cell, the step at which a
broker is killed, and which broker that is. Prints their tables as Markdown. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from kill_matrix.share_cells import POINTS as SHARE_POINTS
from kill_matrix.share_cells import ROLES as SHARE_ROLES
from kill_matrix.share_cells import ShareRole


class Kill(StrEnum):
    """The broker that is killed at the step. It stays dead until the work is done."""

    EXECUTING = "killed"
    COORDINATOR = "coordinator killed"
    """The coordinator that keeps the group's progress: the group coordinator, and of a share group the share
    coordinator.
    """
    CONTROLLER = "controller killed"


class BrokerRole(StrEnum):
    """The broker that executes a step."""

    LEADER = "leader of a partition"
    GROUP = "group coordinator"
    TRANSACTION = "transaction coordinator"


PROGRESS = (BrokerRole.GROUP, ShareRole.SHARE_COORDINATOR)
"""The coordinators that keep the progress of groups."""
CONSUMER, TWO_PHASE, STREAMS, SHARES = "oncelog-consumer", "oncelog-2pc", "oncelog-streams", "shares"
TITLES: Mapping[str, str] = {
    CONSUMER: "transactions of a consumer in a group of the consumer protocol (KIP-848)",
    TWO_PHASE: "prepared transactions (KIP-939)",
    STREAMS: "transactions of two members of a streams group (KIP-1071)",
    SHARES: "a share group (KIP-932)",
}
STEPS: Mapping[str, BrokerRole] = {
    "register-partitions": BrokerRole.TRANSACTION,
    "append": BrokerRole.LEADER,
    "offsets-written": BrokerRole.GROUP,
    "prepare-logged": BrokerRole.TRANSACTION,
    "marker-sent": BrokerRole.TRANSACTION,
    "marker-written": BrokerRole.LEADER,
    "marker-acknowledged": BrokerRole.TRANSACTION,
    "complete-logged": BrokerRole.TRANSACTION,
}
"""The steps of a transaction, each with the broker that executes it."""
REQUESTS: Mapping[str, BrokerRole] = {
    "InitProducerId": BrokerRole.TRANSACTION,
    "ConsumerGroupHeartbeat": BrokerRole.GROUP,
    "StreamsGroupHeartbeat": BrokerRole.GROUP,
    "OffsetFetch": BrokerRole.GROUP,
    "Produce": BrokerRole.LEADER,
    "TxnOffsetCommit": BrokerRole.GROUP,
    "EndTxn": BrokerRole.TRANSACTION,
}
"""The requests of the works, each with the broker that handles it."""
NOT_SENT: Mapping[str, Sequence[str]] = {
    CONSUMER: ("StreamsGroupHeartbeat",),
    STREAMS: ("ConsumerGroupHeartbeat",),
    TWO_PHASE: ("ConsumerGroupHeartbeat", "StreamsGroupHeartbeat"),
}
"""Work -> the requests that it does not send."""


class NewerCell(NamedTuple):
    """One cell: the work, the fail point, whether the kill comes after its step, and the broker that is killed."""

    work: str
    point: str
    """A fail point of docs/testing.md."""
    is_after: bool
    kill: Kill

    @property
    def role(self) -> str:
        """The broker that executes the step."""
        name = self.point.partition(".")[0]
        return SHARE_ROLES[name] if self.work == SHARES else {**STEPS, **REQUESTS}[name]

    @property
    def moment(self) -> str:
        if "." in self.point:
            return self.point
        return f"{'after' if self.is_after else 'before'} {self.point}"

    def __str__(self) -> str:
        return f"{self.work}, {self.kill} at {self.moment} of the {self.role}"


class NewerOutcome(NamedTuple):
    """The result of a cell; `problems` is empty if the run was correct."""

    problems: list[str]
    what: str
    """What the table shows of a correct run: committed and aborted transactions, or the number of deliveries."""
    seconds: float


def all_newer_cells() -> list[NewerCell]:
    cells = []
    for work in TITLES:
        if work == SHARES:
            moments = [(point, False) for point in SHARE_POINTS]
        else:
            names = [name for name in REQUESTS if name not in NOT_SENT[work]]
            moments = [(point, is_after) for point in STEPS for is_after in (False, True)]
            moments += [(f"{name}.{step}", False) for name in names for step in ("request", "answer")]
        cells += [NewerCell(work, point, is_after, kill) for point, is_after in moments for kill in Kill]
    return [cell for cell in cells if cell.kill is not Kill.COORDINATOR or cell.role not in PROGRESS]


def tables(outcomes: Mapping[NewerCell, NewerOutcome]) -> Iterator[str]:
    """Yield the lines of one table for each work. Failures are listed at the end, by number."""
    wrong: list[str] = []
    yield f"{len(outcomes)} runs, {count_wrong(outcomes.values())} of them wrong."
    for work in dict.fromkeys(cell.work for cell in outcomes):
        mine = [cell for cell in outcomes if cell.work == work]
        yield from ("", f"## Newer protocols: {TITLES[work]}", "")
        yield "| | at the | " + " | ".join(Kill) + " |"
        yield "|---" * (2 + len(Kill)) + "|"
        for row in dict.fromkeys(cell._replace(kill=Kill.EXECUTING) for cell in mine):
            entries = " | ".join(_entry(outcomes.get(row._replace(kill=kill)), wrong) for kill in Kill)
            yield f"| {row.moment} | {row.role} | {entries} |"
    if wrong:
        yield ""
        yield from (f"{number}. {text}" for number, text in enumerate(wrong, 1))


def _entry(outcome: NewerOutcome | None, wrong: list[str]) -> str:
    if outcome is None:
        return ""
    if outcome.problems:
        wrong.append("; ".join(" ".join(problem.split()) for problem in outcome.problems))
        return f"**wrong: {len(wrong)}**"
    return f"ok {outcome.what}"


def count_wrong(outcomes: Iterable[NewerOutcome]) -> int:
    return sum(bool(outcome.problems) for outcome in outcomes)
