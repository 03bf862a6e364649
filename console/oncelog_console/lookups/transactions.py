"""Reads the open transactions: transactions that a coordinator knows, and hanging transactions. For each transaction,
finds the partitions that it holds back, and the affected groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from oncelog import TopicPartition
from oncelog.admin import Admin, Explanation, Hang, HangingTransaction
from oncelog.admin.hanging import ONGOING, PREPARED, DescribedTransaction, OpenTransaction
from oncelog.clock import now_ms
from oncelog.cluster import Topic
from oncelog.errors import ConnectionFailed, ErrorCode, KafkaError, PartialFailure
from oncelog_console.limits import MAX_EXPLAINED, MAX_SEARCHED_PARTITIONS, MAX_TRANSACTIONS
from oncelog_console.lookups.brokers import all_topics
from oncelog_console.lookups.missing import Missing, had

Positions = Callable[[TopicPartition], Mapping[str, int]]
"""Returns the committed offsets of groups in a partition, by group id."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A partition that an open transaction holds back. `open_here` is None if the transaction is not open in this
    partition, because it has no record there yet or its marker is already written. `explained` is None if the
    explanation is unavailable. `waiting`: the groups that have read up to the last stable offset, so that their
    read_committed members get no further records.
    """

    partition: TopicPartition
    open_here: OpenTransaction | None
    explained: Explanation | None
    hang: Hang | None
    waiting: tuple[str, ...]

    @property
    def pins(self) -> bool:
        """Whether readers wait for this transaction."""
        explained, mine = self.explained, self.open_here
        if explained is None or explained.pinned_by is None or mine is None:
            return False
        return explained.pinned_by.identity == mine.identity

    @property
    def held_back(self) -> int:
        return self.explained.held_back if self.explained is not None and self.pins else 0


@dataclass(frozen=True, slots=True)
class OpenTransactionView:
    """One open transaction with all its partitions. `held`: the coordinator's description of the transaction; None if
    no coordinator knows it. `since_ms`: the start of the transaction in ms since the epoch, from its coordinator or,
    without a coordinator, from its first record; None if unknown. `lacks_markers`: the partitions in which the
    transaction's marker is not written yet.
    """

    producer_id: int
    producer_epoch: int
    held: DescribedTransaction | None
    holds: tuple[Hold, ...]
    since_ms: int | None

    @property
    def transactional_id(self) -> str | None:
        return None if self.held is None else self.held.transactional_id

    @property
    def state(self) -> str:
        """The state of the transaction as its coordinator reports it; for a hanging transaction, the reason why it
        hangs.
        """
        hangs = self.hangs
        if hangs is not None:
            return f"hangs: {hangs.value}"
        return "unknown" if self.held is None else self.held.state

    @property
    def hangs(self) -> Hang | None:
        return next((hold.hang for hold in self.holds if hold.hang is not None), None)

    @property
    def lacks_markers(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted(self.held.partitions)) if self.held is not None and self.held.state in PREPARED else ()

    @property
    def held_back(self) -> int:
        return sum(hold.held_back for hold in self.holds)

    @property
    def waiting(self) -> tuple[str, ...]:
        return tuple(sorted({group for hold in self.holds for group in hold.waiting}))

    @property
    def ends_by_ms(self) -> int | None:
        """The latest time, in ms since the epoch, at which the coordinator aborts the transaction; None if unknown, or
        if the transaction has no timeout.
        """
        known = [h.explained.ends_by_ms for h in self.holds if h.explained and h.pins and h.explained.ends_by_ms]
        if known:
            return min(known)
        held = self.held
        if held is None or held.state != ONGOING or held.start_time_ms is None or self.hangs is not None:
            return None
        if not held.has_timeout:
            return None
        return held.start_time_ms + held.timeout_ms


@dataclass(slots=True)
class TransactionsView:
    """All open transactions, the oldest first."""

    at_ms: int
    transactions: list[OpenTransactionView] = field(default_factory=list)
    missing: Missing = field(default_factory=dict)


async def look(admin: Admin, positions: Positions) -> TransactionsView:
    """Return the open transactions; raises KafkaError if the cluster cannot be reached."""
    found = TransactionsView(now_ms())
    topics = await all_topics(admin)
    held = await _held(admin, found.missing)
    hanging = await _hanging(admin, topics, found.missing)
    partitions = {where for each in held for where in each.partitions}
    partitions |= {each.transaction.partition for each in hanging}
    explained = await explanations(admin, sorted(partitions), found.missing)
    found.at_ms = now_ms()
    found.transactions = combined(held, hanging, explained, positions)
    return found


async def _held(admin: Admin, missing: Missing) -> list[DescribedTransaction]:
    listed = await had(missing, "transactions", admin.transactions.list(states=[ONGOING, *PREPARED]), [])
    if len(listed) > MAX_TRANSACTIONS:
        missing["transactions"] = f"{len(listed) - MAX_TRANSACTIONS} more are open, and not shown"
    ids = [each.transactional_id for each in listed[:MAX_TRANSACTIONS]]
    if not ids:
        return []
    try:
        described = await admin.transactions.describe(ids)
    except PartialFailure as failure:  # some transactions have ended since they were listed, and their ids have expired
        described = dict(failure.results)
    except KafkaError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            missing["transactions"] = error.message
        described = {}
    return [each for each in described.values() if each.state in (ONGOING, *PREPARED)]


async def _hanging(admin: Admin, topics: Mapping[str, Topic], missing: Missing) -> list[HangingTransaction]:
    count = sum(len(topic.partitions) for topic in topics.values())
    if count > MAX_SEARCHED_PARTITIONS:
        missing["hanging transactions"] = (
            f"{count} partitions are too many to search at each look: oncelog txns find-hanging does it once"
        )
        return []
    return await had(missing, "hanging transactions", admin.transactions.find_hanging(), [])


async def explanations(
    admin: Admin, partitions: list[TopicPartition], missing: Missing
) -> dict[TopicPartition, Explanation]:
    """Return the explanations of the first MAX_EXPLAINED partitions, as far as they are available. Raises
    ConnectionFailed.
    """
    if len(partitions) > MAX_EXPLAINED:
        missing["explanations"] = f"{len(partitions) - MAX_EXPLAINED} more partitions are not explained"
    asked = partitions[:MAX_EXPLAINED]
    if not asked:
        return {}
    try:
        return await admin.transactions.explain(asked)
    # use the results of the other partitions if some partitions, for example those without a leader, are unavailable
    except PartialFailure as failure:
        told = [where for where in asked if where not in failure.errors]
        missing["explanations"] = failure.message
        return await had(missing, "explanations", admin.transactions.explain(told), {}) if told != asked else {}
    except ConnectionFailed:
        raise
    except KafkaError as error:
        missing["explanations"] = error.message
        return {}


def combined(
    held: Iterable[DescribedTransaction],
    hanging: Iterable[HangingTransaction],
    explained: Mapping[TopicPartition, Explanation],
    positions: Positions,
) -> list[OpenTransactionView]:
    """Combine the data of coordinators, logs and groups by transaction. Does no I/O, except that it
    calls `positions`.
    """
    open_here: dict[tuple[int, int], dict[TopicPartition, tuple[OpenTransaction, Hang | None]]] = {}
    described: dict[tuple[int, int], DescribedTransaction | None] = {}
    for each in held:
        described[each.producer_id, each.producer_epoch] = each
    for where, explanation in explained.items():
        pinned = () if explanation.pinned_by is None else (explanation.pinned_by,)
        for opened in (*pinned, *explanation.later):
            # a transaction counts as hanging only after two queries
            open_here.setdefault(_producer(opened), {})[where] = (opened, None)
    for found in hanging:
        opened = found.transaction
        open_here.setdefault(_producer(opened), {})[opened.partition] = (opened, found.hang)
    looks = []
    for producer in dict.fromkeys([*described, *open_here]):
        here = open_here.get(producer, {})
        known = described.get(producer)
        if known is None:
            known = next((opened.held for opened, _ in here.values() if opened.held is not None), None)
        partitions = sorted({*here, *(known.partitions if known is not None and producer in described else ())})
        holds = tuple(_hold(where, here.get(where), explained.get(where), positions) for where in partitions)
        looks.append(OpenTransactionView(*producer, known, holds, _since(producer in described, known, holds)))
    return sorted(looks, key=_by_age)


def _hold(
    where: TopicPartition,
    opened: tuple[OpenTransaction, Hang | None] | None,
    explained: Explanation | None,
    positions: Positions,
) -> Hold:
    mine, hang = opened or (None, None)
    hold = Hold(where, mine, explained, hang, ())
    if not hold.pins or explained is None:
        return hold
    waiting = [group for group, offset in positions(where).items() if offset == explained.last_stable_offset]
    return Hold(where, mine, explained, hang, tuple(sorted(waiting)))


def _producer(opened: OpenTransaction) -> tuple[int, int]:
    return opened.producer.producer_id, opened.producer.producer_epoch


def _since(is_open_there: bool, held: DescribedTransaction | None, holds: Iterable[Hold]) -> int | None:
    if is_open_there and held is not None and held.start_time_ms is not None:
        return held.start_time_ms
    known = [
        first
        for hold in holds
        if hold.open_here is not None
        for first in [
            hold.explained.first_timestamp_ms
            if hold.pins and hold.explained is not None
            else hold.open_here.producer.last_timestamp
        ]
        if first is not None and first >= 0
    ]
    return min(known, default=None)


def _by_age(look: OpenTransactionView) -> tuple[bool, int, int]:
    return look.hangs is None, look.since_ms or 0, look.producer_id
