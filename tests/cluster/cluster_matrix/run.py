"""Runs one cell: three transactions over partitions that all brokers lead, and a kill in the second one; then checks
the result.
"""

from __future__ import annotations

import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from clinging import Clings
from final_state import settle_and_check
from kill_matrix.older_transactions import before_transactions_v2
from kill_matrix.questions import Hit
from raw_transactions import committed_offset
from recording_clients import PRODUCERS, Abortable, RecordingProducer
from replicated_cluster import BROKERS

from cluster_matrix.cells import Cast, Cell, Victims
from cluster_matrix.stage import INTERNAL_TOPICS, Armed, NotReached, Stage
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_testing.history.events import End, Place
from oncelog_testing.history.recorder import History

TRANSACTIONS = 3
TRIES = 3
"""The maximum number of attempts to run one cell. On a slow machine a broker may wait for longer than its session
lasts, so that the transaction ends before the broker reaches the point. In that case no process was killed, and the run
is repeated.
"""
STRUCK = 1
STRUCK_SECONDS = 30.0
"""A process must reach the cell's fail point within this number of seconds after the client has learned that the
transaction has ended.
"""
CLINGS_TO_COORDINATORS = {"librdkafka"}
"""librdkafka 2.16 waits for ever for a group's coordinator that it knew, if that broker has died and left the metadata
(see `clinging`). In runs with librdkafka the group's coordinator is therefore the broker that stays alive, unless that
broker loses its role.
"""
OPEN = ("Ongoing", "CompleteAbort")
"""States of a transaction whose end the client has not requested; the second state occurs if the timeout has ended the
transaction.
"""


class Outcome(NamedTuple):
    """The result of one cell of the matrix; `problems` is empty if the run was correct."""

    problems: list[str]
    committed: int
    aborted: int
    seconds: float
    clung: bool = False
    """Whether librdkafka waited for ever for a broker handle that it had abandoned itself, so that another instance of
    the client had to continue.
    """


@contextmanager
def transactions_of(library: str) -> Iterator[str]:
    """Yield the library's name, one of PRODUCERS; within the block, oncelog-v1 treats brokers as if they did not
    support transactions V2.
    """
    if library == "oncelog-v1":
        with before_transactions_v2():
            yield "oncelog"
    else:
        yield library


class Run:
    def __init__(self, stage: Stage, cell: Cell) -> None:
        self.stage = stage
        self.cell = cell
        self.cluster = stage.cluster
        self.history = History()
        self.topic = f"cell-{uuid.uuid4().hex[:8]}"
        self.places = [Place(self.topic, index) for index in range(len(BROKERS))]
        self.missed_its_point = False
        self.clung = False
        self.progress = 0
        """The group's offset in the transaction that was committed last."""

    def play(self) -> None:
        """Run the three transactions of the cell with the kill in the second one, and check the result. Raises
        AssertionError, or any other error.
        """
        self.stage.tidy()
        self._prepare()
        with transactions_of(self.cell.library) as library, ExitStack() as stack:

            def instance(name: str) -> RecordingProducer:
                return stack.enter_context(PRODUCERS[library](self.cluster.addresses, self.history, name, self.topic))

            producer = instance("anna")
            for number in range(TRANSACTIONS):
                try:
                    self._transaction(producer, number)
                except Clings:
                    assert number >= STRUCK, "it clings though nobody has died"
                    assert not self.clung, "it clings again though nobody has died since"
                    self._until_it_clings_alone(number)
                    producer = self._taken_over(producer, instance)
        self.stage.disarm()
        self._look()

    def _until_it_clings_alone(self, number: int) -> None:
        """Wait until every broker has returned and serves requests, so that only the missing request of the client to
        end the transaction can cause the stall.
        """
        self.clung = True
        if number == STRUCK:
            self._until_struck()
        self.stage.disarm()
        self.cluster.mend()
        self.cluster.until_whole(self.topic, *INTERNAL_TOPICS)
        for index in range(len(BROKERS)):
            self.cluster.until_led(self.topic, index)
        self.cluster.until(lambda: self._committed() == self.progress, "the coordinator of the group answers")
        self.cluster.until(lambda: self._state() in OPEN, f"the transaction is one of {OPEN}")

    def _taken_over(self, clings: RecordingProducer, instance: Callable[[str], RecordingProducer]) -> RecordingProducer:
        """Start another instance with the same transactional id, which aborts the open transaction: none of the aborted
        records may be visible.
        """
        left = clings.transaction
        assert left is not None
        self.stage.forget_ends()
        producer = instance("otto")
        self.history.ended(left, End.ABORTED)
        return producer

    def _state(self) -> str:
        with self.cluster.client(self.cluster.coordinator(self.topic)) as client:
            asked = DescribeTransactionsRequest(transactional_ids=[self.topic])
            (found,) = client.call(asked, ApiKey.DESCRIBE_TRANSACTIONS, 0).transaction_states
        return str(found.transaction_state)

    def _prepare(self) -> None:
        coordinator = self.cluster.coordinator(self.topic)
        leader, third = (node_id for node_id in BROKERS if node_id != coordinator)
        clings = self.cell.library in CLINGS_TO_COORDINATORS
        self.cast = Cast(coordinator, leader, third if clings else leader)
        self.group = self.stage.name_coordinated_by(self.cast.group, self.topic, CoordinatorType.GROUP)
        self.cluster.create_topic(
            self.topic, (coordinator, leader, third), (leader, third, coordinator), (third, coordinator, leader)
        )

    def _transaction(self, producer: RecordingProducer, number: int) -> None:
        is_struck = number == STRUCK
        if is_struck:
            self._arm()
        else:
            self.stage.forget_ends()
        producer.begin()
        try:
            for place in self.places:
                producer.send(place)
            producer.flush()
            producer.send_offset(self.group, self.places[0], number + 1)
            if is_struck and self.cell.aborts:
                producer.abort()
            else:
                producer.commit()
                self.progress = number + 1
        except Abortable:
            assert is_struck, "a transaction that nothing struck was not to be committed"
            producer.abort()
        if is_struck:
            self._until_struck()
        else:
            self.stage.until_complete()

    def _arm(self) -> None:
        cell, cast = self.cell, self.cast
        self.stage.arm(
            Armed(
                Hit(cell.when, cell.point),
                cast.asked(cell, BROKERS),
                cast.killed(cell),
                # restart both victims, because otherwise too few replicas would be in sync for ever
                come_back=cell.victims is Victims.BOTH,
                is_alone=cell.victims is Victims.ALONE,
            )
        )

    def _until_struck(self) -> None:
        try:
            self.stage.until_struck(STRUCK_SECONDS)
        except NotReached:
            self.missed_its_point = True
            raise

    def _look(self) -> None:
        history = self.history
        self.cluster.mend()
        asked = history.now()
        offset = self.cluster.until(self._committed, "the group's offset is known")
        history.offset_read(self.group, self.places[0], offset, asked=asked)
        settle_and_check(self.cluster, history, self.topic)
        assert offset == self.progress, f"the group is at {offset}, not at {self.progress}"
        assert self.ended(End.UNKNOWN) == 0, "the producer was not told the end of a transaction"

    def _committed(self) -> int:
        with self.cluster.client(self.cluster.coordinator(self.group, CoordinatorType.GROUP)) as client:
            code, offset = committed_offset(client, self.group, self.topic, stable=True)
        return 0 if code else max(offset, 0)

    def ended(self, end: End) -> int:
        return sum(transaction.end is end for transaction in self.history.transactions)


def run_cell(stage: Stage, cell: Cell) -> Outcome:
    began = time.monotonic()
    problems: list[str] = []
    for _ in range(TRIES):
        run = Run(stage, cell)
        problems = _problems_of(run)
        if not run.missed_its_point:
            break
    problems += stage.complaints()
    return Outcome(problems, run.ended(End.COMMITTED), run.ended(End.ABORTED), time.monotonic() - began, run.clung)


def _problems_of(run: Run) -> list[str]:
    try:
        run.play()
    except Exception as error:  # an error in a run makes one cell fail, and the matrix continues
        where = traceback.extract_tb(error.__traceback__)[-1]
        return [f"{error or repr(error)} ({where.name}, line {where.lineno})"]
    return []
