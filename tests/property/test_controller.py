"""The controller keeps partition states correct under arbitrary events. Brokers die, return and restart; former
controllers continue to write; responses are lost; leaders propose ISRs from outdated state; and reassignments begin and
are reverted.

The real classes run on a tree in memory with several sessions; the judge checks each write of a partition's state when
the tree applies it.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.examples import examples
from tests.support.shared_tree import SharedTree, TreeSession

from oncelog_broker.controller.alter_partition import Member, Proposal
from oncelog_broker.controller.leadership import claim_controllership
from oncelog_broker.controller.partitions import PartitionController
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.controller.writer import Deposed
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership.registration import register_broker
from oncelog_broker.metadata.model import reader
from oncelog_broker.metadata.model.image import NO_LEADER, ClusterImage
from oncelog_broker.metadata.model.image import PartitionState as StateInImage
from oncelog_broker.metadata.model.payloads import (
    BrokerRegistration,
    Endpoint,
    PartitionState,
    ReplicaAssignment,
    parse_controller_epoch,
    parse_partition_state,
    parse_topic,
)
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.metadata.stores.store import Create, StoreUnavailable
from oncelog_protocol.elections import ElectionType
from oncelog_protocol.errors import KafkaError

BROKERS = (1, 2, 3, 4)
broker_ids = st.sampled_from(BROKERS)
losses = st.sampled_from(["", "reply", "request"])
delays = st.integers(0, 2)
"""Number of consecutive writes that seem lost to the session but reach the metadata tree later."""


class Judge:
    """Checks every write of a partition's state when the tree has applied it."""

    def __init__(self, shared: SharedTree) -> None:
        self._shared = shared
        self.states: dict[str, PartitionState] = {}
        self.unsure: set[tuple[str, int]] = set()
        """Set of (state path, broker): ISR members that may lack some of the partition's records, because the ends of
        their logs were lost.
        """
        self.granted: set[tuple[str, int, int]] = set()
        """Set of (state path, broker, broker epoch): brokers that may join this ISR, because a leader has proposed
        them.
        """
        self._assignments: dict[str, ReplicaAssignment] = {}
        """State path -> the partition's assignment at the last write of that state."""

    def loses_its_tail(self, broker: int) -> None:
        self.unsure |= {(path, broker) for path, state in self.states.items() if broker in state.isr}

    def look(self, path: str) -> None:
        node = self._shared.tree.node(path)
        if node is None or not path.endswith("/state"):
            return
        state = parse_partition_state(node.data, path)
        before = self.states.get(path)
        self.states[path] = state
        self._look_at_replicas(path, before, state)
        current = self._shared.tree.node(paths.CONTROLLER_EPOCH)
        assert current is not None
        assert state.controller_epoch == parse_controller_epoch(current.data, ""), "a zombie wrote"
        assert state.isr, "the ISR is empty"
        assert len(set(state.isr)) == len(state.isr)
        assert state.leader == NO_LEADER or state.leader in state.isr
        if before is None:
            assert state.leader_epoch == 0
            return
        assert state.leader_epoch - before.leader_epoch in (0, 1)
        if state.leader != before.leader:
            assert state.leader_epoch == before.leader_epoch + 1
        joined = set(state.isr) - set(before.isr)
        for broker in joined:
            registered = self._shared.tree.node(paths.broker_id(broker))
            epochs = {epoch for where, who, epoch in self.granted if (where, who) == (path, broker)}
            assert epochs, "joined an ISR unasked"
            assert registered is None or registered.czxid in epochs, "a former incarnation was fit for the ISR"
        if state.leader_epoch > before.leader_epoch and state.leader != NO_LEADER:
            assert state.leader in before.isr, "an unclean election"
            if (path, state.leader) in self.unsure:
                others = [broker for broker in before.isr if (path, broker) not in self.unsure]
                assert not others, "one that may have lost records leads, while another has not"
                self.unsure.discard((path, state.leader))  # the log of the new leader is now the complete one
        self.unsure -= {(path, broker) for broker in before.isr if broker not in state.isr}

    def _look_at_replicas(self, path: str, before: PartitionState | None, state: PartitionState) -> None:
        """Check that the assignment, which is written in the same transaction as the state, agrees with the state."""
        topic, _, partition, _ = path.removeprefix(f"{paths.TOPICS}/").split("/")
        node = self._shared.tree.node(paths.topic(topic))
        assert node is not None
        assignment = parse_topic(node.data, "").partitions[int(partition)]
        was = self._assignments.get(path, assignment)
        self._assignments[path] = assignment
        assert set(state.isr) <= set(assignment.replicas), "one is in sync that holds nothing"
        assert state.leader in (NO_LEADER, *assignment.replicas), "led by one that was taken away"
        if before is None or assignment == was:
            return
        assert set(state.isr) <= set(before.isr), "one joined the ISR by being assigned"
        gone = set(was.replicas) - set(assignment.replicas)
        if gone and state.leader != NO_LEADER:
            assert state.leader_epoch == before.leader_epoch + 1, "who was taken away may fetch as if it were not"
        if gone & set(was.removing_replicas) and not assignment.is_reassigned:
            assert set(was.target) <= set(before.isr), "taken away from before others had everything"


def is_led(image: ClusterImage, state: StateInImage) -> bool:
    """Whether the leader has been registered without a break since the state was written. A leader that registered
    again after that write must not lead before another election.
    """
    leader = image.brokers.get(state.leader)
    return leader is not None and leader.epoch <= state.written


class ControllerMachine(RuleBasedStateMachine):
    """A cluster of up to four brokers, with at most one current controller."""

    @initialize()
    def found(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.entropy = random.Random(0).randbytes
        self.shared = SharedTree()
        self.judge = Judge(self.shared)
        self.shared.judges.append(self.judge.look)
        self.observer = self.shared.connect()
        self.sessions: dict[int, TreeSession] = {}
        self.terms: list[tuple[TreeSession, PartitionController]] = []
        self.images: list[ClusterImage] = []
        self.topics = 0
        self.do(self.observer.multi([Create(path) for path in paths.PERSISTENT]))
        self.do(self.observer.multi([Create(paths.CLUSTER_ID, b'{"version":"1","id":"c"}')]))
        for broker in BROKERS:
            self.start(broker, is_log_tail_kept=True)
        self.new_controller()

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        if not getattr(self, "terms", None):
            return
        try:
            self.current_controller_settles_everything()
        finally:
            self.loop.close()

    # --- brokers

    @rule(broker=broker_ids, is_log_tail_kept=st.booleans())
    def start(self, broker: int, is_log_tail_kept: bool) -> None:
        """Start a broker; if the broker was running, close its old session first, as a restart does."""
        self.stop(broker)
        session = self.sessions[broker] = self.shared.connect()
        if not is_log_tail_kept:
            self.judge.loses_its_tail(broker)
        registration = BrokerRegistration((Endpoint("P", "h", broker),), is_log_tail_kept=is_log_tail_kept, boot="b")
        self.do(register_broker(session, broker, registration))

    @rule(broker=broker_ids)
    def stop(self, broker: int) -> None:
        session = self.sessions.pop(broker, None)
        if session is not None:
            self.do(_expire(session))

    # --- controllers

    @rule()
    def new_controller(self) -> None:
        """Make another broker the controller; the former controller does not know this yet."""
        for session, _ in self.terms[-1:]:
            self.do(_expire(session))
            session.notice = lambda: None  # type: ignore[method-assign]
            # The former controller's writes still reach the metadata tree, so only the check of the controller epoch
            # protects the partition states.
            self.shared._sessions[session.session_id] = session
        session = self.shared.connect()
        if self.shared.tree.node(paths.CONTROLLER) is not None:
            self.do(self.observer.delete(paths.CONTROLLER))
        claimed = self.do(claim_controllership(session, 1, 0))
        assert claimed is not None
        term = PartitionController(session, claimed)
        self.terms.append((session, term))
        self.do(term.read_all())

    @rule(which=st.integers(0, 2), lost=losses, late=delays)
    def brokers_are_told(self, which: int, lost: str, late: int) -> None:
        self.at_work(which, lost, lambda term: term.brokers_changed(), late)

    @rule(which=st.integers(0, 2))
    def late_writes_land(self, which: int) -> None:
        session, _ = self.terms[-1 - which % len(self.terms)]
        self.do(_land(session))

    @rule(which=st.integers(0, 2), replicas=st.integers(1, 3), lost=losses)
    @precondition(lambda self: self.topics < 4)
    def create_topic(self, which: int, replicas: int, lost: str) -> None:
        self.topics += 1
        name = f"t{self.topics}"

        async def create(term: PartitionController) -> None:
            try:
                topics = TopicController(term._store, lambda: term, self.entropy)
                await topics.create_topic(name, 2, replicas)
            except KafkaError:
                return

        self.at_work(which, lost, create)

    @rule(which=st.integers(0, 2), broker=broker_ids, lost=losses, late=delays)
    @precondition(lambda self: self.images)
    def shut_down(self, which: int, broker: int, lost: str, late: int) -> None:
        """Announce the controlled shutdown of a broker, which may keep running for long afterwards."""
        known = self.images[-1].brokers.get(broker)
        if known is None:
            return

        async def ask(term: PartitionController) -> None:
            try:
                await term.shut_down(broker, known.epoch)
            except KafkaError:
                return

        self.at_work(which, lost, ask, late)

    @rule(which=st.integers(0, 2), lost=losses, late=delays)
    def elect_preferred(self, which: int, lost: str, late: int) -> None:
        self.at_work(which, lost, lambda term: term.elect(ElectionType.PREFERRED, None), late)

    @rule(which=st.integers(0, 2), image=st.integers(0, 3), data=st.data(), lost=losses, late=delays)
    @precondition(lambda self: self.images)
    def propose(self, which: int, image: int, data: st.DataObject, lost: str, late: int) -> None:
        """Let a leader propose an ISR, based on one of the latest cluster images, which may be outdated."""
        known = self.images[-1 - image % len(self.images)]
        led = [
            (topic, index, state)
            for topic in known.topics.values()
            for index, state in topic.partitions.items()
            if state.leader != NO_LEADER and state.leader in known.brokers
        ]
        if not led:
            return
        topic, index, state = data.draw(st.sampled_from(led))
        isr = data.draw(st.lists(st.sampled_from(state.replicas), unique=True, min_size=1))
        # An absent broker sends no fetches, so no leader proposes it.
        isr = [broker for broker in isr if broker in known.brokers]
        members = [Member(broker, known.brokers[broker].epoch) for broker in isr]
        proposal = Proposal(state.leader, state.leader_epoch, state.partition_epoch, members)
        path = paths.partition_state(topic.name, index)
        self.judge.granted.update((path, member.broker, member.epoch) for member in members)

        async def alter(term: PartitionController) -> None:
            try:
                await term.alter(state.leader, known.brokers[state.leader].epoch, [(topic.topic_id, index, proposal)])
            except KafkaError:
                return

        self.at_work(which, lost, alter, late)

    @rule(which=st.integers(0, 2), data=st.data(), lost=losses, late=delays)
    @precondition(lambda self: self.images and any(image.topics for image in self.images))
    def reassign(self, which: int, data: st.DataObject, lost: str, late: int) -> None:
        """Reassign all partitions of one topic, or cancel their reassignments."""
        known = next(image for image in reversed(self.images) if image.topics)
        name = data.draw(st.sampled_from(sorted(known.topics)))
        targets = st.none() | st.lists(broker_ids, unique=True, min_size=1, max_size=3)
        wanted = [(PartitionKey(name, index), data.draw(targets)) for index in known.topics[name].partitions]

        async def ask(term: PartitionController) -> None:
            await term.reassign(wanted)

        self.at_work(which, lost, ask, late)

    @rule()
    def look(self) -> None:
        self.images = [*self.images[-3:], self.do(reader.read_image(self.observer))]

    def at_work(self, which: int, lost: str, work: Any, late: int = 0) -> None:
        """Let a controller do `work`; 0 is the youngest controller, 1 its predecessor, and so on."""
        session, term = self.terms[-1 - which % len(self.terms)]
        is_current = term is self.terms[-1][1]
        session.lose_replies, session.lose_requests = int(lost == "reply"), int(lost == "request")
        session.delay_requests = late
        try:
            self.do(work(term))
        except Deposed:
            assert not is_current
        except StoreUnavailable:
            pass  # The response to a read was also lost, so the controller will read the entire metadata tree again.
        finally:
            session.lose_replies = session.lose_requests = session.delay_requests = 0

    # --- the final state

    @invariant()
    def nothing_is_pending(self) -> None:
        assert not asyncio.all_tasks(self.loop) if hasattr(self, "loop") else True

    def current_controller_settles_everything(self) -> None:
        """Check that, after the controller has read the entire metadata tree, each partition that can have a leader has
        a leader, whatever events the controller missed.
        """
        session, term = self.terms[-1]
        self.do(_land(session))
        term.distrust()  # the controller also reads its view again after each lost connection
        self.do(term.brokers_changed())
        writes = self.shared.writes
        self.do(term.brokers_changed())
        self.do(term.read_all())
        assert self.shared.writes == writes, "it is never content"
        self.look()
        image, stopping = self.images[-1], term.view.live.keys() - term.view.staying
        doubtful = {path for path, _ in self.judge.unsure}
        # While the controller waits for a broker that may have more records, it does not write the state of a partition
        # without a leader. Writing the state would confirm ISR members that may lack records.
        for topic in image.topics.values():
            for index, state in topic.partitions.items():
                if paths.partition_state(topic.name, index) in doubtful and not is_led(image, state):
                    continue
                if state.leader != NO_LEADER:
                    assert state.leader in image.brokers
                elif state.leader_epoch >= 0:
                    assert not any(b in image.brokers and b not in stopping for b in state.isr)
                if state.leader != NO_LEADER and any(b not in stopping for b in state.isr):
                    assert not any(b in stopping and b in image.brokers for b in state.isr), "it is waited for"
        for path, broker in self.judge.unsure:
            topic, _, partition, _ = path.removeprefix(f"{paths.TOPICS}/").split("/")
            led = is_led(image, image.topics[topic].partitions[int(partition)])
            assert not led or broker not in image.brokers or broker in stopping, (
                f"{broker} may lack records of {path}, and is in its ISR"
            )
        self.everything_comes_to_its_target()

    def everything_comes_to_its_target(self) -> None:
        """Check that reassignments complete once all brokers are alive and all replicas have caught up."""
        _, term = self.terms[-1]
        for broker in BROKERS:
            if broker not in self.sessions or term.view.broker(broker).is_stopping:
                self.start(broker, is_log_tail_kept=True)
        self.do(term.brokers_changed())
        self.look()
        targets = {}
        for topic in self.images[-1].topics.values():
            for index, state in topic.partitions.items():
                assignment = ReplicaAssignment(state.replicas, state.adding_replicas, state.removing_replicas)
                targets[topic.name, index] = assignment.target
                assert state.leader != NO_LEADER
                members = [Member(broker, self.images[-1].brokers[broker].epoch) for broker in state.replicas]
                proposal = Proposal(state.leader, state.leader_epoch, state.partition_epoch, members)
                path = paths.partition_state(topic.name, index)
                self.judge.granted.update((path, member.broker, member.epoch) for member in members)
                sender = self.images[-1].brokers[state.leader].epoch
                self.do(term.alter(state.leader, sender, [(topic.topic_id, index, proposal)]))
        self.look()
        for (name, index), target in targets.items():
            reached = self.images[-1].topics[name].partitions[index]
            assert (reached.replicas, reached.adding_replicas, reached.removing_replicas) == (target, (), ())


async def _land(session: TreeSession) -> None:
    session.land_delayed()


async def _expire(session: TreeSession) -> None:
    session.expire()


TestController = ControllerMachine.TestCase
TestController.settings = settings(examples(80, of=200), stateful_step_count=30, deadline=None)
