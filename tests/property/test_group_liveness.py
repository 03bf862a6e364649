"""A group coordinator responds to every request within an hour, whatever requests of any version came before, and even
if appends failed.

The walks are seeded. Unlike the clients of `test_groups.py`, no client follows the protocol here: requests have
invented, mixed and repeated ids, and members leave in batches. Each walk ends with an hour without requests. In half of
the walks every append of that hour fails, because no waiting request may depend on a log that recovers.

`GroupDriver` also checks that no waiting request gets two responses, and that a step whose records could not be logged
changed nothing.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.support.groups import REBALANCE_MS, SESSION_MS, Answer, GroupDriver, Identity

from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.messages.join_group import JoinGroupResponse

STEPS = 60
HOUR_SECONDS = 3600.0
INSTANCES = (None, None, None, "i1", "i2")
PROTOCOLS: tuple[Any, ...] = (
    (("a", b"x"), ("b", b"x")),
    (("b", b"y"), ("a", b"x")),
    (("b", b"x"),),
    (("c", b"z"),),
    (),
)


class Walk:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        delay_ms = self.rng.choice([0, 3000])
        self.driver = GroupDriver(
            GroupConfig(initial_rebalance_delay_ms=delay_ms, max_size=self.rng.choice([2, 4, 100]))
        )
        self.asked: list[tuple[float, str, Answer]] = []
        self.ids = ["", "nobody"]
        """Every member id that a response ever contained, whether a request used it later or not."""
        self.generations: list[JoinGroupResponse] = []

    def note(self, what: str, answer: Answer) -> None:
        self.asked.append((self.driver.seconds, what, answer))

    def take_in(self) -> None:
        """Make the member ids and generations of the responses available to later requests of other clients."""
        for _, what, answer in self.asked:
            if what == "join" and answer.response is not None:
                if answer.response.member_id and answer.response.member_id not in self.ids:
                    self.ids.append(answer.response.member_id)
                if answer.response.error_code == 0 and answer.response not in self.generations:
                    self.generations.append(answer.response)

    def member_id(self) -> str:
        """Return a member id for a request: usually one of the latest existing ones."""
        return self.rng.choice(self.ids[-6:] if self.rng.random() < 0.8 else self.ids)

    # --- steps of the walk

    def join(self) -> None:
        rng = self.rng
        self.note(
            "join",
            self.driver.join(
                rng.choice(["", self.member_id()]),
                instance_id=rng.choice(INSTANCES),
                protocols=rng.choice(PROTOCOLS[:2] if rng.random() < 0.9 else PROTOCOLS),
                version=rng.randint(0, 9),
                session_ms=rng.choice([SESSION_MS, 6000, 60_000]),
                rebalance_ms=rng.choice([REBALANCE_MS, 1000, 300_000]),
            ),
        )

    def sync(self) -> None:
        if not self.generations:
            return
        known = self.rng.choice(self.generations[-5:])
        member_id = self.rng.choice([known.member_id, known.member_id, known.leader, self.member_id()])
        group = self.driver.machine.groups.get("g")
        given = dict.fromkeys(group.members if group is not None else (), b"share")
        answer = self.driver.sync(
            known,
            given if self.rng.random() < 0.8 else None,
            member_id=member_id,
            instance_id=self.rng.choice(INSTANCES),
        )
        self.note("sync", answer)

    def heartbeat(self) -> None:
        group = self.driver.machine.groups.get("g")
        generation = -1 if group is None else group.generation - (self.rng.random() < 0.1)
        self.driver.heartbeat(self.member_id(), generation)

    def leave(self) -> None:
        """Let one, some or all members leave. Reserved ids are included, and some ids are listed twice."""
        group = self.driver.machine.groups.get("g")
        known = [] if group is None else [*group.members, *group.pending_members]
        everybody = self.rng.random() < 0.4
        leaving = known if everybody else [self.member_id() for _ in range(self.rng.randint(1, 3))]
        self.rng.shuffle(leaving)
        identities = [Identity(member_id=each) for each in leaving]
        if self.rng.random() < 0.3:
            identities.append(Identity(member_id="", group_instance_id=self.rng.choice(INSTANCES)))
        self.note("leave", self.driver.leave(*identities))

    def commit(self) -> None:
        group = self.driver.machine.groups.get("g")
        generation = self.rng.choice([-1, -1 if group is None else group.generation])
        self.note("commit", self.driver.commit({("t", 0): 1}, member_id=self.member_id(), generation=generation))

    def delete(self) -> None:
        self.run_quietly(lambda _: self.driver.machine.delete("g"))

    def expire(self) -> None:
        self.run_quietly(lambda _: self.driver.machine.expire("g"))

    def run_quietly(self, operation: Any) -> None:
        """Run a step that belongs to no request, such as a timer."""
        self.driver.run(operation)

    def time_passes(self) -> None:
        self.driver.advance(self.rng.choice([0.1, 1.0, 4.0, SESSION_MS / 1000, REBALANCE_MS / 1000, 301.0]))

    def appends_fail_or_not(self) -> None:
        self.driver.fail_appends = not self.driver.fail_appends

    def a_step_raises(self) -> None:
        self.driver.fail()

    def restart(self) -> None:
        self.driver.restart()

    # --- running the walk

    def run(self) -> None:
        often = [self.join] * 6 + [self.sync] * 4 + [self.heartbeat, self.leave, self.leave, self.commit]
        seldom = [self.delete, self.expire, self.a_step_raises, self.restart]
        for _ in range(STEPS):
            kind = self.rng.random()
            if kind < 0.03:
                self.rng.choice(seldom)()
            elif kind < 0.1:
                self.appends_fail_or_not()
            elif kind < 0.25:
                self.time_passes()
            else:
                self.rng.choice(often)()
            self.take_in()
        self.driver.fail_appends = self.rng.random() < 0.5
        self.driver.advance(HOUR_SECONDS)
        unanswered = [(seconds, what) for seconds, what, answer in self.asked if not answer.is_there]
        assert not unanswered, f"never answered: {unanswered}"
        if not self.driver.fail_appends:
            group = self.driver.machine.groups.get("g")
            assert group is None or group.state is GroupState.EMPTY, "a group of members that are gone"


@pytest.mark.parametrize(
    "first", [*range(0, 160, 40), *(pytest.param(n, marks=pytest.mark.soak) for n in range(160, 4000, 40))]
)
def test_s85_every_request_is_answered_whatever_cannot_be_logged(first: int) -> None:
    for seed in range(first, first + 40):
        try:
            Walk(seed).run()
        except (AssertionError, KafkaError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error
