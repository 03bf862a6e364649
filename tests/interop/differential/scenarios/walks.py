"""Sends random sequences of requests, determined by a seed. Each choice depends on the seed and on responses that were
equal on both sides.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from tests.interop.differential.batches import Producer, batch
from tests.interop.differential.calls import (
    EARLIEST,
    GROUP,
    LATEST,
    READ_COMMITTED,
    add_partitions,
    await_markers,
    coordinator,
    create,
    delete_records,
    describe_producers,
    describe_transactions,
    end_transaction,
    fetch,
    idempotent_producer,
    init,
    list_offsets,
    list_offsets_quietly,
    produce,
    transactional_producer,
)
from tests.interop.differential.members import (
    Member,
    all_offsets,
    commit_offset,
    describe_groups,
    heartbeat,
    join,
    leave,
    sync,
)
from tests.interop.differential.scenario import Scenario
from tests.interop.differential.scenarios import directories, transaction_offsets
from tests.interop.differential.scenarios.consumer_walk import ConsumerWalk
from tests.interop.differential.scenarios.share_walks import ShareWalk
from tests.interop.differential.scenarios.streams_walk import StreamsWalk
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode

SEEDS: Final = int(os.environ.get("DIFFERENTIAL_SEEDS", "8"))
"""The number of walks of each kind."""
FIRST_SEED: Final = int(os.environ.get("DIFFERENTIAL_FIRST_SEED", "1"))
STEPS: Final = int(os.environ.get("DIFFERENTIAL_STEPS", "60"))


def produce_walk(side: Side, seed: int, moves: int = 0) -> None:
    """Let two idempotent producers write to two partitions, with varying sequences, epochs and duplicates; records are
    deleted in between. `moves` is the weight of moves of a log to the other log directory.
    """
    chance = Random(seed)
    create(side, "a", 2)
    producers = [idempotent_producer(side) for _ in range(2)]
    reached: dict[tuple[int, int], tuple[int, int]] = {}
    for step in range(STEPS):
        who, partition = chance.randrange(2), chance.randrange(2)
        epoch, sequence = reached.get((who, partition), (0, 0))
        records = chance.choice((1, 1, 2, 3, 5))
        kind = chance.choices(
            ("next", "back", "gap", "epoch", "odd epoch", "old epoch", "delete", "describe", "move"),
            (55, 20, 7, 6, 3, 4, 2 if not moves else 0, 3, moves),
        )[0]
        if kind == "delete":
            offset = chance.randrange(-1, 20)
            delete_records(side, "a", offset, partition=partition, label=f"{step}: delete to {offset}")
            continue
        if kind == "move":
            directories.relocate(side, "a", f"{step}: move {partition}", partition)
            continue
        if kind == "describe":
            describe_producers(side, "a", 0, 1, label=f"{step}: producers")
            continue
        back = chance.randrange(1, 12)
        epoch, sequence = {
            "next": (epoch, sequence),
            "back": (epoch, max(0, sequence - back)),
            "gap": (epoch, sequence + 1 + back % 3),
            "epoch": (epoch + 1, 0),
            "odd epoch": (epoch + 1, back % 3),
            "old epoch": (max(0, epoch - 1), back % 5),
        }[kind]
        producer = Producer(producers[who].id, epoch)
        label = f"{step}: {kind}, producer {who} epoch {epoch} sequence {sequence} records {records}"
        answer = produce(side, "a", batch(records, producer, sequence), label, partition=partition)
        taken = answer.responses[0].partition_responses[0].error_code == 0
        if taken and (epoch, sequence) >= reached.get((who, partition), (0, 0)):
            reached[who, partition] = epoch, sequence + records
    for partition in (0, 1):
        fetch(side, "a", list_offsets_quietly(side, "a", partition, timestamp=EARLIEST), partition=partition)
        list_offsets(side, "a", LATEST, partition=partition)


@dataclass(slots=True)
class Owner:
    """The owner of a transactional id in a walk; `before` is the previous owner, which this owner has fenced."""

    producer: Producer
    second_protocol: bool
    before: Producer | None = None
    sequences: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})


class TransactionWalk:
    """Send random requests of two transactional producers on two partitions, with offsets, fencing,
    zombies and reads.
    """

    init_versions: ClassVar = (3, 4, 5)
    """Versions of InitProducerId; with v6, half of the owners use two-phase commit."""

    def __init__(self, side: Side, seed: int) -> None:
        self.side = side
        self.chance = Random(seed)
        self.owners: dict[str, Owner] = {}
        self.step = 0

    def run(self) -> None:
        create(self.side, "a", 2)
        coordinator(self.side, "g", GROUP)
        for name in "xy":
            self.take_over(name)
        kinds: dict[Callable[[str, int], None], int] = {
            self.write: 40,
            self.end: 25,
            lambda name, partition: self.take_over(name): 5,
            self.next_epoch: 4,
            self.zombie: 4,
            self.commit_offsets: 6,
            self.read_offsets: 4,
            self.describe: 4,
            self.stable_end: 6,
            self.read: 6,
        }
        for self.step in range(STEPS):
            move = self.chance.choices(list(kinds), list(kinds.values()))[0]
            move(self.chance.choice("xy"), self.chance.randrange(2))
        self.finish()

    def take_over(self, name: str) -> None:
        version = self.chance.choice(self.init_versions)
        two_phase = version >= 6 and self.chance.random() < 0.5
        producer = transactional_producer(self.side, name, version=version, enable2_pc=two_phase)
        self.side.note(f"{self.step}: {name} taken over with v{version}, two-phase {two_phase}", producer.epoch)
        old = self.owners.get(name)
        self.owners[name] = Owner(producer, self.chance.random() < 0.5, old.producer if old else None)
        self.settle()

    def next_epoch(self, name: str, partition: int) -> None:
        """Request the next epoch of the owner's own producer id (KIP-360)."""
        version, owner = self.chance.choice(self.init_versions), self.owners[name]
        two_phase, whose = version >= 6 and self.chance.random() < 0.5, owner.producer
        answer = init(
            self.side,
            name,
            f"{self.step}: {name} requests the next epoch of {whose.epoch}",
            producer_id=whose.id,
            epoch=whose.epoch,
            version=version,
            enable2_pc=two_phase,
        )
        if answer.error_code == 0:
            producer = Producer(answer.producer_id, answer.producer_epoch, name)
            self.owners[name] = Owner(producer, owner.second_protocol, owner.producer)
        self.settle()

    def settle(self) -> None:
        """Wait until the markers of all ended transactions are written, because otherwise later responses would depend
        on the broker's speed.
        """
        for name in self.owners:
            asked = {"transactional_ids": [self.side.own(name)]}
            self.side.get(
                ApiKey.DESCRIBE_TRANSACTIONS,
                0,
                asked,
                until=lambda answer: not answer.transaction_states[0].transaction_state.startswith("Prepare"),
            )

    def write(self, name: str, partition: int) -> None:
        owner = self.owners[name]
        producer, sequence = owner.producer, owner.sequences[partition]
        records, adds = self.chance.choice((1, 2)), self.chance.random() < 0.9
        label = f"{self.step}: {name} sequence {sequence}"
        if adds and not owner.second_protocol:
            add_partitions(self.side, producer, {"a": [partition]}, label)
        data = batch(records, producer, sequence)
        version = 12 if owner.second_protocol else 11
        answer = produce(self.side, "a", data, label, partition=partition, transactional_id=name, version=version)
        if answer.responses[0].partition_responses[0].error_code == 0:
            owner.sequences[partition] += records

    def end(self, name: str, partition: int) -> None:
        owner = self.owners[name]
        commits, version = self.chance.random() < 0.6, 5 if owner.second_protocol else 4
        answer = end_transaction(self.side, owner.producer, commits, f"{self.step}: {name}", version=version)
        if owner.second_protocol and answer.error_code == 0:
            owner.producer = Producer(answer.producer_id, answer.producer_epoch, name)
            owner.sequences = {0: 0, 1: 0}
        self.settle()

    def zombie(self, name: str, partition: int) -> None:
        versions = self.chance.choice((11, 12)), self.chance.choice((4, 5))
        old, commits = self.owners[name].before, self.chance.random() < 0.5
        if old is None:
            return
        label = f"{self.step}: zombie of {name}"
        data = batch(1, old, 0)
        produce(self.side, "a", data, label, partition=partition, transactional_id=name, version=versions[0])
        end_transaction(self.side, old, commits, label, version=versions[1])
        self.settle()

    def commit_offsets(self, name: str, partition: int) -> None:
        owner, label = self.owners[name], f"{self.step}: {name}"
        if not owner.second_protocol:
            transaction_offsets.add_offsets(self.side, owner.producer, "g", label)
        version = 5 if owner.second_protocol else 3
        transaction_offsets.commit(
            self.side, owner.producer, "g", label, partitions=(partition,), metadata=f"{self.step}", version=version
        )

    def read_offsets(self, name: str, partition: int) -> None:
        all_offsets(self.side, "g", f"{self.step}: offsets")

    def describe(self, name: str, partition: int) -> None:
        describe_transactions(self.side, name, label=f"{self.step}: {name}")

    def stable_end(self, name: str, partition: int) -> None:
        label = f"{self.step}: last stable offset"
        list_offsets(self.side, "a", LATEST, label, partition=partition, isolation=READ_COMMITTED)

    def read(self, name: str, partition: int) -> None:
        offset = self.chance.randrange(4)
        fetch(self.side, "a", offset, f"{self.step}", partition=partition, isolation=READ_COMMITTED)

    def finish(self) -> None:
        for name in "xy":
            self.take_over(name)
        for partition in (0, 1):
            await_markers(self.side, "a", partition)
            fetch(self.side, "a", label="at last", partition=partition, isolation=READ_COMMITTED)
        describe_producers(self.side, "a", 0, 1, label="at last")
        all_offsets(self.side, "g", "at last")


STRANGER: Final = "stranger"


class GroupWalk:
    """Send random legal and illegal requests of the members of one group, one request after another.

    A pending member joins with its id immediately, and a group that has become empty is not deleted. These restrictions
    avoid known differences between the brokers, because after such a difference the two groups would differ for the
    rest of the walk.
    """

    def __init__(self, side: Side, seed: int) -> None:
        self.side = side
        self.chance = Random(seed)
        self.members: list[str] = []
        self.generation = 0
        self.step = 0

    def run(self) -> None:
        create(self.side, "a")
        coordinator(self.side, "g", GROUP)
        commit_offset(self.side, "g", "so that the group stays")
        kinds: dict[Callable[[Member, str], None], int] = {
            self.join: 25,
            self.sync: 20,
            self.heartbeat: 15,
            self.commit: 15,
            self.read_offsets: 5,
            self.describe: 7,
            self.leave: 8,
        }
        for self.step in range(STEPS):
            if self.members and self.chance.random() < 0.85:
                member = self.chance.choice(self.members)
            else:
                member = self.chance.choice(("", STRANGER))
            generation = self.generation + self.chance.choice((0, 0, 0, 0, 0, 1, -1))
            who = "member" if member in self.members else repr(member)
            label = f"{self.step}: {who}, generation {generation - self.generation:+d}"
            move = self.chance.choices(list(kinds), list(kinds.values()))[0]
            move(Member(member, generation), label)

    def join(self, member: Member, label: str) -> None:
        if len(self.members) > 1 or (self.members and member.id == ""):
            member = replace(member, id=self.members[0])
        if len(self.members) > 1:
            return
        answer = join(self.side, "g", member.id, label, rebalance_ms=1000)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = join(self.side, "g", answer.member_id, f"{label}, with the id given", rebalance_ms=1000)
        if answer.error_code == 0:
            self.generation = answer.generation_id
            if answer.member_id not in self.members:
                self.members.append(answer.member_id)

    def sync(self, member: Member, label: str) -> None:
        assigned = [(one, bytes([index])) for index, one in enumerate(self.members)]
        sync(self.side, "g", member, assigned, label)

    def heartbeat(self, member: Member, label: str) -> None:
        heartbeat(self.side, "g", member, label)

    def commit(self, member: Member, label: str) -> None:
        generation = self.chance.choice((member.generation, member.generation, member.generation, -1))
        commit_offset(self.side, "g", label, offset=self.step, generation=generation, member=member.id, version=8)

    def read_offsets(self, member: Member, label: str) -> None:
        all_offsets(self.side, "g", label)

    def describe(self, member: Member, label: str) -> None:
        describe_groups(self.side, "g", label=label)

    def leave(self, member: Member, label: str) -> None:
        leave(self.side, "g", (member.id, None), label=label)
        if member.id in self.members:
            self.members.remove(member.id)


class TwoPhaseWalk(TransactionWalk):
    """A `TransactionWalk` whose owners also use two-phase commit (KIP-939); open transactions are not kept."""

    init_versions: ClassVar = (5, 6, 6)


def _run(walk: type[Any], side: Side, seed: int) -> None:
    walk(side, seed).run()


WALKS: Final[dict[str, Callable[[Side, int], None]]] = {
    "produce": produce_walk,
    "transactions": partial(_run, TransactionWalk),
    "groups": partial(_run, GroupWalk),
    "shares": lambda side, seed: ShareWalk(side, seed, STEPS).run(),
    "streams": lambda side, seed: StreamsWalk(side, seed, STEPS).run(),
    "consumers": lambda side, seed: ConsumerWalk(side, seed, STEPS).run(),
}
CONFIGURED_WALKS: Final[dict[str, Callable[[Side, int], None]]] = {
    "two_phase": partial(_run, TwoPhaseWalk),
    "moves": partial(produce_walk, moves=8),
}
"""Walks for brokers that allow two-phase commit and have two log directories."""


def _of_seed(walk: Callable[[Side, int], None], seed: int) -> Callable[[Side], None]:
    return lambda side: walk(side, seed)


def _scenarios(walks: dict[str, Callable[[Side, int], None]]) -> tuple[Scenario, ...]:
    return tuple(
        Scenario(f"walk.{name}.{seed}", _of_seed(walk, seed), is_random=True)
        for name, walk in walks.items()
        for seed in range(FIRST_SEED, FIRST_SEED + SEEDS)
    )


SCENARIOS: Final[tuple[Scenario, ...]] = _scenarios(WALKS)
CONFIGURED: Final[tuple[Scenario, ...]] = _scenarios(CONFIGURED_WALKS)
