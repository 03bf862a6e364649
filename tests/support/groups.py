"""A GroupMachine without a runtime: the driver carries out effects immediately, counts time as a number, and stores the
responses.

`log` has the records that the machine logged, so that a second machine can replay them. `fail_appends` makes every
append fail. A step whose records could not be logged must leave the machine unchanged (S85), and the driver checks this
each time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.effects import Effects, Job
from oncelog_broker.coordinator.group.classic_group import ClassicGroup, Member
from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.held_bytes import HeldBytes
from oncelog_broker.coordinator.group.joining import Join
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_broker.coordinator.timers import TimerQueue
from oncelog_broker.runtime.steps import run_steps
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.heartbeat import HeartbeatRequest
from oncelog_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from oncelog_protocol.messages.leave_group import LeaveGroupRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

SESSION_MS = 10_000
REBALANCE_MS = 30_000
START_MS = 1_700_000_000_000
PROTOCOLS = (("range", b""),)
NOT_COMPARED = {
    *("held", "checked_topics", "resolved_names", "asked_to_join", "asked_at_ms"),
    *("configured", "delayed_until_ms", "endpoint_epoch", "endpoints", "shutdown_requested_by"),
}
"""Attributes of a group that a replay of the log cannot restore, so that comparisons leave them out."""
Identity = LeaveGroupRequest.MemberIdentity


class Answer:
    """The result of one request to the machine: a response, an error, or nothing while the request waits."""

    def __init__(self) -> None:
        self.response: Any = None
        self.error: ErrorCode | None = None

    @property
    def is_there(self) -> bool:
        return self.response is not None or self.error is not None

    @property
    def code(self) -> ErrorCode:
        """The response's error code, or the error in place of a response; reading this property fails if the request
        still waits.
        """
        assert self.is_there, "still waiting"
        return self.error if self.error is not None else ErrorCode(self.response.error_code)

    def __repr__(self) -> str:
        return f"Answer({self.error!r}, {self.response!r})"


def state_of(machine: GroupMachine) -> dict[str, dict[str, Any]]:
    """Return the complete state of the machine's groups, in a form that is comparable by value. A group without
    members that was never logged is left out.
    """
    return {
        group_id: {name: _copied(getattr(group, name)) for name in type(group).__slots__ if name not in NOT_COMPARED}
        for group_id, group in machine.groups.items()
        if not isinstance(group, ClassicGroup)
        or group.is_logged
        or group.pending_members
        or group.state is not GroupState.EMPTY
    }


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, Member):
        return {name: getattr(value, name) for name in Member.__slots__}
    return set(value) if isinstance(value, set) else value


class GroupDriver:
    """Sends requests to the machine and stores their results. `group` is the classic group "g"."""

    def __init__(self, config: GroupConfig | None = None) -> None:
        self.config = config or GroupConfig()
        self.seconds = 0.0
        self.ids = count(1)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: TimerQueue[Any] = TimerQueue()
        self.held = HeldBytes()
        self.machine = self.new_machine(self.held)
        self.fail_appends = False
        self.jobs: list[Job] = []

    def new_machine(self, held: HeldBytes) -> GroupMachine:
        return GroupMachine(self.config, lambda: self.now_ms, lambda: str(next(self.ids)), held)

    @property
    def now_ms(self) -> int:
        return START_MS + int(self.seconds * 1000 + 0.5)

    @property
    def group(self) -> ClassicGroup:
        group = self.machine.groups["g"]
        assert isinstance(group, ClassicGroup)
        return group

    # --- methods that do the work of the coordinator runtime

    def run(self, operation: Any) -> Answer:
        answer = Answer()
        try:
            self._step(lambda: operation(answer))
        except KafkaError as error:
            assert not answer.is_there
            answer.error = error.code
        return answer

    def _step(self, operation: Callable[[], Effects]) -> None:
        before = state_of(self.machine) if self.fail_appends else None
        effects = operation()
        if not (effects.records and self.fail_appends):
            self._carry_out(effects)
            return
        assert state_of(self.machine) == before, "a step changed soft state, and then could not log its records"
        error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if effects.if_not_logged is not None:
            self._carry_out(effects.if_not_logged(error))
        raise error

    def _carry_out(self, effects: Effects) -> None:
        for record in effects.records:
            encoded = self.machine.encode(record)
            self.log.append(tuple(encoded))
            self.machine.replay(record, len(self.log) - 1, -1)
        for change in effects.changes:
            change()
        for key, seconds in effects.timers:
            if seconds is None:
                self.timers.cancel(key)
            else:
                self.timers.set(key, self.seconds + seconds)
        for answer, response in effects.replies:
            assert not answer.is_there, "answered twice"
            if isinstance(response, KafkaError):
                answer.error = response.code
            else:
                answer.response = response
        self.jobs += effects.jobs
        if effects.afterwards is not None:
            self._step(effects.afterwards)

    def run_jobs(self) -> None:
        """Run the requested jobs and pass their results to the machine; of several jobs with the same group and name,
        only the last one runs.
        """
        self.run_jobs_after(lambda: None)

    def run_jobs_after(self, happens: Callable[[], object]) -> None:
        """Run the requested jobs, call `happens`, and then pass the jobs' results to the machine."""
        jobs = {(job.key, job.name): job for job in self.jobs}
        self.jobs.clear()
        results = [(job.key, run_steps(job.steps())) for job in jobs.values()]
        happens()
        for key, result in results:
            try:
                self._step(partial(self.machine.on_job, key, result))
            except KafkaError:
                continue

    def advance(self, seconds: float) -> None:
        """Advance the time and fire expired timers; a timer whose records cannot be appended fires again later."""
        end = self.seconds + seconds
        while (due := self.timers.next_due()) is not None and due <= end:
            self.seconds = max(self.seconds, due)
            for key in self.timers.pop_due(due):
                try:
                    self._step(partial(self.machine.on_timer, key))
                except KafkaError:
                    self.timers.set(key, self.seconds + 1.0)
        self.seconds = end

    def replayed(self, held: HeldBytes | None = None) -> GroupMachine:
        """Return a new machine whose entire state comes from a replay of the log."""
        machine = self.new_machine(held or HeldBytes())
        for offset, (key, value) in enumerate(self.log):
            record = machine.decode(key, value)
            assert record is not None
            machine.replay(record, offset, -1)
        return machine

    def fail(self) -> None:
        """Simulate an exception in a step of the group: the waiting requests get an error, and the group is rolled
        back.
        """
        group = self.machine.groups.get("g")
        for answer in () if not isinstance(group, ClassicGroup) else (*group.joining.values(), *group.syncing.values()):
            answer.error = ErrorCode.UNKNOWN_SERVER_ERROR
        self._carry_out(self.machine.on_failed("g"))

    def restart(self) -> None:
        """Forget all state except for the log, and load the log into a new machine."""
        unanswered = self.machine.on_unloaded(KafkaError(ErrorCode.NOT_COORDINATOR))
        self._carry_out(unanswered)
        assert self.held.bytes == 0
        self.machine, self.timers = self.replayed(self.held), TimerQueue()
        for effects in self.machine.on_loaded():
            self._carry_out(effects)

    # --- requests

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Any = PROTOCOLS,
        protocol_type: str = "consumer",
        group_id: str = "g",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
        client_id: str = "c",
    ) -> Answer:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols
            ],
        )
        client = Client(client_id, "/127.0.0.1")
        return self.run(
            lambda answer: self.machine.join(
                Join(request, client, answer, requires_member_id=version >= 4, can_skip_assignment=version >= 9)
            )
        )

    def sync(
        self,
        joined: JoinGroupResponse,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        member_id: str | None = None,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Answer:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id if generation is None else generation,
            member_id=joined.member_id if member_id is None else member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=given, assignment=assignment)
                for given, assignment in (assignments or {}).items()
            ],
        )
        return self.run(lambda answer: self.machine.sync(request, answer))

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id="g", generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        return self.run(lambda answer: self.machine.heartbeat(request, answer)).code

    def leave(self, *members: str | Identity, group_id: str = "g") -> Answer:
        identities = [Identity(member_id=member) if isinstance(member, str) else member for member in members]
        return self.run(lambda answer: self.machine.leave(group_id, identities, answer))

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        group_id: str = "g",
        metadata: str | None = "",
        retention_ms: int = -1,
        known: tuple[str, ...] = ("t", "u"),
        version: int = 9,
    ) -> Answer:
        topic_type = OffsetCommitRequest.OffsetCommitRequestTopic
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=[
                topic_type(
                    name=topic,
                    partitions=[
                        topic_type.OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        return self.run(
            lambda answer: self.machine.commit(
                request, lambda topic, index: topic in known and index >= 0, answer, version=version
            )
        )

    # --- several requests in one call

    def join_new(self, **options: Any) -> tuple[str, Answer]:
        """Let a dynamic member join as clients do: the first response has a member id for the second request."""
        given = self.join(**options)
        assert given.code is ErrorCode.MEMBER_ID_REQUIRED
        return given.response.member_id, self.join(given.response.member_id, **options)

    def stable(self, members: int = 1) -> list[JoinGroupResponse]:
        """Create a stable group with this many dynamic members. Returns the members' last JoinGroup responses, the
        leader's first.
        """
        answers: dict[str, Answer] = {}
        for _ in range(members):
            rejoining = list(answers)
            member_id, answers[""] = self.join_new()
            answers[member_id] = answers.pop("")
            for other in rejoining:
                answers[other] = self.join(other)
        responses = {member_id: answer.response for member_id, answer in answers.items()}
        leader = next(iter(responses.values())).leader
        waiting = [self.sync(response) for member_id, response in responses.items() if member_id != leader]
        handed_out = self.sync(responses[leader], {member_id: member_id.encode() for member_id in responses})
        for answer in (*waiting, handed_out):
            assert answer.code is ErrorCode.NONE
            assert isinstance(answer.response, SyncGroupResponse)
        return sorted(responses.values(), key=lambda response: response.member_id != leader)
