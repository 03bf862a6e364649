"""A Kafka cluster in memory for the steps of the Spark sink, with coordinators, a topic and the states of queries. Each
call runs one step at a time.

The caller may be paused or killed before the call takes effect, or after the effect but before the caller gets the
result. The model is written from Kafka's rules and shares no code with the broker.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from oncelog.prepared_transaction import PreparedTransaction
from oncelog_pipeline.sink.digest import NOTHING, Digest, digest_of
from oncelog_pipeline.sink.names import Query
from oncelog_pipeline.sink.operations import Marker, Superseded
from oncelog_pipeline.sink.orphans import Kept
from oncelog_pipeline.sink.state import Place, State, Written


class Row(NamedTuple):
    """A row of a partition of a batch; `version` differs between attempts that produce different rows."""

    batch: int
    partition: int
    number: int
    count: int
    version: str


class Fenced(Exception):
    """Raised if another producer has taken over the transactional id."""


@types.coroutine
def turn() -> Generator[None, None, None]:
    """Let other processes run any number of steps."""
    yield


@dataclass
class Held:
    """The coordinator's state of one transactional id."""

    producer_id: int
    epoch: int = -1
    state: str = "Empty"
    rows: list[Row] = field(default_factory=list)
    marker: Marker | None = None
    owner_epoch: int | None = None
    """Epoch of the driver's producer that has kept the open transaction, which then has no timeout; None if no driver
    has kept it.
    """


def row_digest(row: Row) -> Digest:
    return digest_of("rows", [repr(row).encode()])


class SimulatedCounter:
    """Counts the rows of a replayed batch and writes none of them."""

    def __init__(self) -> None:
        self.digest = NOTHING

    async def send(self, row: Row) -> None:
        await turn()
        self.digest = self.digest.plus(row_digest(row))


class SimulatedProducer:
    """The producer with which a task of the simulated Spark writes its rows. The producer's first row begins its
    transaction.
    """

    def __init__(self, cluster: SimulatedCluster, transactional_id: str, epoch: int) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.epoch = epoch
        self.is_handed_over = False
        self.has_rows = False
        self.digest = NOTHING

    async def send(self, row: Row) -> None:
        self.digest = self.digest.plus(row_digest(row))
        await turn()
        held = self._held()
        held.state = "Ongoing"
        held.rows.append(row)
        self.has_rows = True
        await turn()

    async def prepare(self) -> Written | None:
        await turn()
        if not self.has_rows:
            return None
        self.is_handed_over = True
        is_v2 = self.cluster.is_v2
        held = self.cluster.held[self.transactional_id]
        prepared = PreparedTransaction(self.transactional_id, held.producer_id, self.epoch, is_v2)
        return Written(prepared, Place(self.transactional_id, 0, self.epoch))

    async def commit_with_marker(self, batch: int) -> None:
        await turn()
        held = self._held()
        held.state, held.marker = "Ongoing", Marker(batch, self.digest)
        self.cluster.ended(self.transactional_id, commits=True)
        await turn()

    async def close(self) -> None:
        held = self.cluster.held[self.transactional_id]
        if held.epoch == self.epoch and held.state == "Ongoing" and not self.is_handed_over:
            self.cluster.ended(self.transactional_id, commits=False)

    def _held(self) -> Held:
        held = self.cluster.held[self.transactional_id]
        if held.epoch != self.epoch:
            raise Fenced(self.transactional_id)
        if held.state != "Ongoing" and self.has_rows:
            # with transactions V1, the coordinator has aborted the transaction because of its timeout
            raise Fenced(f"{self.transactional_id}: aborted")
        return held


class SimulatedOwner:
    def __init__(self, cluster: SimulatedCluster, query: Query, epoch: int) -> None:
        self.cluster, self.query, self.epoch = cluster, query, epoch

    async def write(self, state: State | None) -> None:
        await turn()
        if self.cluster.owners[self.query] != self.epoch:
            raise Superseded
        if state is None:
            self.cluster.states.pop(self.query, None)
        else:
            self.cluster.states[self.query] = state
            self.cluster.had_state.add(self.query)
            self.cluster.was_lost |= bool(state.lost)
            self.cluster.deciders.add(self.query)
        await turn()

    async def close(self) -> None: ...


class SimulatedCluster:
    """The simulated cluster; `visible` are the rows that a read_committed reader sees, in the order in which their
    transactions committed.
    """

    def __init__(self, rng: Random, *, is_v2: bool, has_two_phase_commit: bool = False) -> None:
        self.rng = rng
        self.has_two_phase_commit = has_two_phase_commit
        self.is_v2 = is_v2
        self.held: dict[str, Held] = {}
        self.states: dict[Query, State] = {}
        self.owners: dict[Query, int] = {}
        self.markers: dict[str, Marker] = {}
        self.visible: list[Row] = []
        self.committed: set[Place] = set()
        self.was_lost = False
        self.deciders: set[Query] = set()
        """Queries whose present owner was the last to commit the query's state; a new owner removes the query from this
        set.
        """
        self.had_state: set[Query] = set()
        """Queries whose state was ever written; it may have been removed."""
        self.late: set[str] = set()
        """Transactional ids whose transaction times out just before it would end."""
        self.targets: dict[str, str] = {}
        self.age_seconds = 0.0
        """The age of all query states in seconds."""
        self.same_id_aborts = 0
        """How many times a task's producer has aborted an open transaction of another producer with the same
        transactional id.
        """

    async def read_state(self, query: Query) -> State | None:
        await turn()
        state = self.states.get(query)
        await turn()
        return state

    async def has_had_state(self, query: Query) -> bool:
        await turn()
        had_state = query in self.had_state
        await turn()
        return had_state

    async def states_by_name(self) -> dict[str, Kept]:
        await turn()
        return {query.name: Kept(state, self.age_seconds) for query, state in self.states.items()}

    async def own(self, query: Query) -> SimulatedOwner:
        await turn()
        epoch = self.owners[query] = self.owners.get(query, -1) + 1
        self.deciders.discard(query)
        await turn()
        return SimulatedOwner(self, query, epoch)

    async def open_task(self, transactional_id: str) -> SimulatedProducer:
        await turn()
        held = self.held.get(transactional_id)
        self.same_id_aborts += held is not None and held.state == "Ongoing"
        epoch = self._initialised(transactional_id)
        await turn()
        return SimulatedProducer(self, transactional_id, epoch)

    def counting(self) -> SimulatedCounter:
        return SimulatedCounter()

    async def marker(self, transactional_id: str) -> Marker | None:
        await turn()
        marker = self.markers.get(transactional_id)
        await turn()
        return marker

    async def has_committed(self, transactional_id: str) -> bool:
        await turn()
        held = self.held.get(transactional_id)
        is_decider = transactional_id in {query.id for query in self.deciders}
        return is_decider or (held is not None and held.state == "CompleteCommit")

    async def target(self, topic: str) -> str | None:
        await turn()
        return self.targets.get(topic)

    async def is_ongoing(self, transactional_id: str) -> bool:
        await turn()
        held = self.held.get(transactional_id)
        return held is not None and held.state == "Ongoing"

    async def are_open(self, transactions: Sequence[PreparedTransaction], least_left: float) -> list[bool]:
        """Return for each transaction whether it is open; a transaction may time out between any two steps."""
        open_ones = []
        for each in transactions:
            await turn()
            held = self.held[each.transactional_id]
            open_ones.append(held.state == "Ongoing" and held.epoch == each.epoch)
        return open_ones

    async def keep(self, transactions: Sequence[PreparedTransaction]) -> list[PreparedTransaction | None]:
        if not self.has_two_phase_commit:
            return list(transactions)
        kept: list[PreparedTransaction | None] = []
        for each in transactions:
            await turn()
            held = self.held[each.transactional_id]
            is_it = held.state == "Ongoing" and held.epoch == each.epoch
            if held.state == "Ongoing":
                held.owner_epoch = (held.epoch if held.owner_epoch is None else held.owner_epoch) + 1
                if not is_it:
                    self.ended(each.transactional_id, commits=False)
            else:
                held.epoch += 1
            kept.append(each._replace(epoch=held.owner_epoch, is_v2=True) if is_it and held.owner_epoch else None)
            await turn()
        return kept

    async def end(self, transactions: Sequence[PreparedTransaction], *, commits: bool) -> list[bool]:
        """End the transactions in random order, because the real requests run concurrently; return which of them have
        ended.
        """
        order = list(range(len(transactions)))
        self.rng.shuffle(order)
        have_ended = [False] * len(transactions)
        for index in order:
            await turn()
            have_ended[index] = self._end(transactions[index], commits=commits)
        await turn()
        return have_ended

    async def are_visible(self, places: Sequence[Place]) -> list[bool]:
        await turn()
        return [place in self.committed for place in places]

    async def ongoing(self, query: Query) -> list[str]:
        await turn()
        prefix = query.tasks_prefix
        found = [name for name, held in self.held.items() if held.state == "Ongoing" and name.startswith(prefix)]
        await turn()
        return found

    async def fence(self, transactional_ids: Collection[str]) -> None:
        for transactional_id in transactional_ids:
            await turn()
            self._initialised(transactional_id)

    async def remove_state(self, query: Query, seen: State) -> bool:
        owner = await self.own(query)
        if self.states.get(query) != seen:
            return False
        await owner.write(None)
        return True

    async def pause(self, seconds: float) -> None:
        await turn()

    def ended(self, transactional_id: str, *, commits: bool) -> None:
        """End the open transaction of this transactional id as the coordinator does."""
        held = self.held[transactional_id]
        assert held.state == "Ongoing"
        if commits:
            self.visible += held.rows
            self.committed.add(Place(transactional_id, 0, held.epoch))
            if held.marker is not None:
                self.markers[transactional_id] = held.marker
        held.state = "CompleteCommit" if commits else "CompleteAbort"
        if held.owner_epoch is None:
            held.epoch += self.is_v2
        else:
            held.epoch, held.owner_epoch = held.owner_epoch + 1, None
        held.rows, held.marker = [], None

    def time_out(self, transactional_id: str) -> None:
        """Let transaction.timeout.ms expire: abort the transaction with the next epoch, unless a driver has kept it."""
        if self.held[transactional_id].owner_epoch is not None:
            return
        self.ended(transactional_id, commits=False)
        self.held[transactional_id].epoch += not self.is_v2

    def _initialised(self, transactional_id: str) -> int:
        held = self.held.setdefault(transactional_id, Held(len(self.held)))
        if held.state == "Ongoing":
            self.ended(transactional_id, commits=False)
        held.epoch += 1
        held.state = "Empty"
        return held.epoch

    def _end(self, asked: PreparedTransaction, *, commits: bool) -> bool:
        if asked.transactional_id in self.late:
            self.late.remove(asked.transactional_id)
            self.time_out(asked.transactional_id)
        held = self.held[asked.transactional_id]
        wanted = "CompleteCommit" if commits else "CompleteAbort"
        if asked.is_v2 and asked.epoch == held.epoch - 1 and held.state.startswith("Complete"):
            return held.state == wanted
        is_kept = held.owner_epoch is not None and held.epoch <= asked.epoch < held.owner_epoch
        if held.state == "Ongoing" and is_kept and not commits:
            self._initialised(asked.transactional_id)  # the transaction was kept and is undecided: fence its producer
            return True
        if asked.epoch != (held.epoch if held.owner_epoch is None else held.owner_epoch):
            return not commits  # fenced: the producer that raised the epoch has aborted the transaction
        if held.state == "Ongoing":
            self.ended(asked.transactional_id, commits=commits)
            return True
        return held.state == wanted or (asked.is_v2 and not commits)

    def open_now(self) -> list[str]:
        return [name for name, held in self.held.items() if held.state == "Ongoing"]

    def rows_of(self, batch: int) -> list[Row]:
        return [row for row in self.visible if row.batch == batch]
