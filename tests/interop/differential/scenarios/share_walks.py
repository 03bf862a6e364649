"""Sends random requests of the members of one share group, determined by a seed, and compares which records the members
get.

The walk keeps a model of the share partition: which records are available, and which ones each member has. Each random
choice depends only on the seed and on this model. Offsets of markers, and of aborted records if the group reads only
committed ones, are no part of the model: Apache Kafka delivers some of them, and a member acknowledges them as gaps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tests.interop.differential.batches import batch
from tests.interop.differential.calls import (
    add_partitions,
    await_markers,
    create,
    delete_records,
    fill,
    list_offsets_quietly,
    transactional_producer,
)
from tests.interop.differential.share_members import (
    ACCEPT,
    FILLED_MS,
    GAP,
    REJECT,
    RELEASE,
    Acknowledged,
    ShareMember,
    describe_share_offsets,
    share_group,
)
from tests.interop.differential.side import PATIENCE_SECONDS, ScenarioBroken, Side

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.share_fetch import AcquireMode

MEMBERS: Final = 3
MOST_RELEASES: Final = 3
"""Records that were delivered more often are not released, because a broker delivers such records in smaller parts."""
EVERYTHING: Final = 500


@dataclass(slots=True)
class Reader:
    """A member with its session. `held` are the records that it has acquired, with their delivery counts; `gaps` are
    acquired offsets that have no record.
    """

    member: ShareMember
    is_joined: bool = False
    held: dict[int, int] = field(default_factory=dict)
    gaps: set[int] = field(default_factory=set)


class ShareWalk:
    """Two to three members fetch, acknowledge, close their sessions, leave and join, while records are produced, in
    transactions, too, if the seed says so.
    """

    def __init__(self, side: Side, seed: int, steps: int) -> None:
        self.side = side
        self.chance = Random(seed)
        self.steps = steps
        self.has_transactions = seed % 2 == 0
        self.reads_committed = seed % 4 == 0
        self.readers: list[Reader] = []
        self.available: dict[int, int] = {}
        self.done: set[int] = set()
        self.end = 0
        self.sequence = 0
        self.are_released_late = False
        """Whether the next fetch must get all available records, because Apache Kafka releases the records of a closed
        session after its response.
        """
        self.step = 0

    def run(self) -> None:
        create(self.side, "a")
        isolation = "read_committed" if self.reads_committed else "read_uncommitted"
        share_group(self.side, share_isolation_level=isolation, share_delivery_count_limit=10)
        for number in range(MEMBERS):
            self.readers.append(Reader(ShareMember(self.side, "g", f"m{number}", connection=f"m{number}")))
        if self.has_transactions:
            self.producer = transactional_producer(self.side, "t")
        self.readers[0].member.settle({"a": [0]})
        self.readers[0].is_joined = True
        moves: dict[Callable[[Reader], None], int] = {
            self.produce: 22,
            self.fetch: 26,
            self.acknowledge: 22,
            self.acknowledge_others: 5,
            self.wrong_epoch: 3,
            self.close: 6,
            self.heartbeat: 6,
            self.leave: 3,
            self.delete: 2,
            self.describe: 5,
        }
        for step in range(self.steps):
            self.step = step
            reader = self.chance.choice(self.readers)
            self.chance.choices(list(moves), list(moves.values()))[0](reader)
        self.finish()

    # --- records

    def produce(self, reader: Reader) -> None:
        counts = [self.chance.choice((1, 1, 2, 3, 5)) for _ in range(self.chance.choice((1, 1, 2)))]
        if not self.has_transactions or self.chance.random() < 0.5:
            fill(self.side, "a", [batch(count) for count in counts])
            self.add(sum(counts), is_read=True)
            return
        commits = self.chance.random() < 0.6
        add_partitions(self.side, self.producer, {"a": [0]}, f"{self.step}")
        records = []
        for count in counts:
            records.append(batch(count, self.producer, self.sequence))
            self.sequence += count
        self.fill_in_transaction(records)
        asked = {
            "transactional_id": self.side.own("t"),
            "producer_id": self.producer.id,
            "producer_epoch": self.producer.epoch,
            "committed": commits,
        }
        self.side.get(ApiKey.END_TXN, 4, asked)
        await_markers(self.side, "a")
        self.add(sum(counts), is_read=commits or not self.reads_committed)
        self.end += 1  # the marker

    def fill_in_transaction(self, records: Iterable[bytes]) -> None:
        for one in records:
            data = {"name": self.side.own("a"), "partition_data": [{"index": 0, "records": one}]}
            asked = {"transactional_id": self.side.own("t"), "acks": -1, "timeout_ms": 5000, "topic_data": [data]}
            answer = self.side.get(ApiKey.PRODUCE, 11, asked)
            if answer.responses[0].partition_responses[0].error_code:
                raise ScenarioBroken(f"{self.side.name}: {answer}")

    def add(self, count: int, *, is_read: bool) -> None:
        if is_read:
            self.available |= dict.fromkeys(range(self.end, self.end + count), 0)
        self.end += count

    def delete(self, reader: Reader) -> None:
        """Delete records that are done. Nothing else is deleted, because Apache Kafka notices a new start of the log
        only with the next fetch.
        """
        first = min([self.end, *self.available, *(offset for one in self.readers for offset in one.held)])
        delete_records(self.side, "a", first, label=f"{self.step}: delete")

    # --- members

    def fetch(self, reader: Reader) -> None:
        limit = self.chance.choice((1, 2, 3, 7, EVERYTHING))
        if self.has_transactions or self.are_released_late:
            limit = EVERYTHING
        self.are_released_late = False
        wanted = min(limit, len(self.available))
        found = self.acquire(reader, limit, wanted)
        expected = {offset: self.available[offset] + 1 for offset in sorted(self.available)[:wanted]}
        self.side.note(f"{self.step}: {reader.member.id} fetches {limit}", [sorted(found.items()), found == expected])
        for offset in found:
            self.available.pop(offset, None)
        reader.held |= found

    def acquire(self, reader: Reader, limit: int, wanted: int) -> dict[int, int]:
        """Fetch until the member has got `wanted` records, because a broker may respond with fewer. Returns the
        delivery counts by offset. Raises ScenarioBroken.
        """
        found: dict[int, int] = {}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            answer = self.ask(reader, limit - len(found))
            acquired = [one for topic in answer.responses for p in topic.partitions for one in p.acquired_records]
            for one in acquired:
                for offset in range(one.first_offset, one.last_offset + 1):
                    if offset in self.available:
                        found[offset] = one.delivery_count
                    else:
                        reader.gaps.add(offset)
            if len(found) >= wanted:
                return found
            if time.monotonic() > deadline:
                raise ScenarioBroken(f"{self.side.name}: {self.step}: {found}, but {self.available} are available")

    def ask(self, reader: Reader, limit: int) -> Any:
        member = reader.member
        answer = member.quiet_fetch(
            {} if member.session_epoch else {"a": [0]},
            wait_ms=FILLED_MS if self.available else 0,
            max_records=max(1, limit),
            share_acquire_mode=int(AcquireMode.RECORD_LIMIT),
        )
        if answer.error_code:
            raise ScenarioBroken(f"{self.side.name}: {self.step}: {answer}")
        return answer

    def acknowledge(self, reader: Reader) -> None:
        offsets = [one for one in sorted(reader.held) if self.chance.random() < 0.7]
        types = {}
        for offset in offsets:
            kinds = (ACCEPT, ACCEPT, ACCEPT, REJECT, RELEASE, GAP)
            kind = self.chance.choice(kinds)
            types[offset] = ACCEPT if kind is RELEASE and reader.held[offset] > MOST_RELEASES else kind
        self.settle(reader, types, f"{self.step}: {reader.member.id} acknowledges {len(types)}")

    def settle(self, reader: Reader, types: dict[int, int], label: str) -> None:
        """Acknowledge records, and all gaps of the member."""
        if not types or reader.member.session_epoch == 0:
            return
        code = self.send(reader, runs({**types, **dict.fromkeys(reader.gaps, GAP)}))
        self.side.note(label, code)
        if code:
            return
        reader.gaps.clear()
        for offset, kind in types.items():
            count = reader.held.pop(offset)
            if kind == RELEASE:
                self.available[offset] = count
            else:
                self.done.add(offset)

    def acknowledge_others(self, reader: Reader) -> None:
        """Acknowledge records that are available, or that another member has."""
        held = [offset for one in self.readers if one is not reader for offset in one.held]
        choices = sorted([*held, *self.available])
        if not choices or reader.member.session_epoch == 0:
            return
        offset = self.chance.choice(choices)
        code = self.send(reader, runs({offset: ACCEPT}))
        self.side.note(f"{self.step}: {reader.member.id} acknowledges a record of somebody else", bool(code))

    def send(self, reader: Reader, batches: Sequence[Acknowledged]) -> int:
        answer = reader.member.quiet_acknowledge({("a", 0): batches})
        return int(answer.error_code or answer.responses[0].partitions[0].error_code)

    def wrong_epoch(self, reader: Reader) -> None:
        member = reader.member
        label = f"{self.step}: {member.id}, wrong epoch"
        if member.session_epoch == 0:
            member.acknowledge(f"{label}, no session", {}, epoch=1)
        elif member.session_epoch > 1:
            answer = member.quiet_acknowledge({}, epoch=member.session_epoch + 5)
            self.side.note(label, answer.error_code)

    def close(self, reader: Reader) -> None:
        """Close the session, which releases its records. Records that were delivered often are accepted before."""
        often = {offset: ACCEPT for offset, count in reader.held.items() if count > MOST_RELEASES}
        self.settle(reader, often, f"{self.step}: {reader.member.id} acknowledges before it closes")
        if reader.member.session_epoch == 0:
            return
        answer = reader.member.quiet_acknowledge({}, epoch=-1)
        self.side.note(f"{self.step}: {reader.member.id} closes", answer.error_code)
        reader.member.session_epoch = 0
        self.are_released_late = self.are_released_late or bool(reader.held)
        self.available |= reader.held
        reader.held.clear()
        reader.gaps.clear()

    def heartbeat(self, reader: Reader) -> None:
        first = {} if reader.is_joined else {"topics": ["a"], "epoch": 0}
        answer = reader.member.beat(f"{self.step}: {reader.member.id}", **first)
        reader.is_joined = not answer.error_code

    def leave(self, reader: Reader) -> None:
        if sum(one.is_joined for one in self.readers) < 2 or not reader.is_joined:
            return
        reader.member.leave(f"{self.step}: {reader.member.id} leaves")
        reader.is_joined = False

    def describe(self, reader: Reader) -> None:
        if self.done:
            describe_share_offsets(self.side, "g", label=f"{self.step}: offsets")

    def finish(self) -> None:
        for reader in self.readers:
            self.close(reader)
        last = self.readers[0]
        self.fetch(last)
        while self.available:
            self.settle(last, dict.fromkeys(last.held, ACCEPT), "accepts in between")
            self.fetch(last)
        self.settle(last, dict.fromkeys(last.held, ACCEPT), "accepts the rest")
        self.side.note("end of the log", [self.end, list_offsets_quietly(self.side, "a")])
        self.describe(last)


def runs(types: dict[int, int]) -> list[Acknowledged]:
    """Return acknowledgement batches of neighbouring offsets with these types."""
    found: list[tuple[int, int, list[int]]] = []
    for offset in sorted(types):
        if found and found[-1][1] == offset - 1:
            first, _, before = found[-1]
            found[-1] = first, offset, [*before, types[offset]]
        else:
            found.append((offset, offset, [types[offset]]))
    return list(found)
