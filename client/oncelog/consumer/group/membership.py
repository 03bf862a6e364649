"""Where a member of a group stands, and what an error of the coordinator means to it. Pure: no clock, no I/O.

                 ┌───────────────────── UNJOINED ◄──────────────────────┐
                 ▼                                                      │ the generation is gone,
    ┌──────► PREPARING ──JoinGroup answered──► COMPLETING ──SyncGroup answered──► STABLE
    │            │                                 │                                │
    └────────────┴───────────── the group rebalances: join again ───────────────────┘

FENCED (another process has our instance id) ends everything; LEFT ends it until the next subscription. A member keeps
its generation while it joins the next one: by it, it may still commit, and cooperative members go on reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from oncelog.consumer.group.subscription import NO_GENERATION
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode

NO_MEMBER_ID: Final = ""


class MemberState(Enum):
    """A state, and what the member waits for in it."""

    UNJOINED = "a reason to join"
    PREPARING = "the answer to JoinGroup"
    COMPLETING = "the answer to SyncGroup"
    STABLE = "the next rebalance"
    FENCED = "nothing any more"
    LEFT = "a subscription"


PREVIOUS: Final[Mapping[MemberState, frozenset[MemberState]]] = {
    MemberState.UNJOINED: frozenset(MemberState) - {MemberState.FENCED},
    MemberState.PREPARING: frozenset({MemberState.UNJOINED, MemberState.STABLE}),
    MemberState.COMPLETING: frozenset({MemberState.PREPARING}),
    MemberState.STABLE: frozenset({MemberState.COMPLETING}),
    MemberState.FENCED: frozenset(MemberState),
    MemberState.LEFT: frozenset(MemberState) - {MemberState.FENCED},
}
"""The states from which each state may be entered."""


class Reaction(Enum):
    """What to do about an error."""

    RETRY = auto()
    """The same again, after the backoff."""
    FIND_COORDINATOR = auto()
    """Find out who coordinates the group now, and the same again."""
    TAKE_MEMBER_ID = auto()
    """Join again with the id that came with the error (KIP-394)."""
    REJOIN = auto()
    """Join the next generation; partitions are given up as for any rebalance."""
    RESET_GENERATION = auto()
    """Join again as the same member. The partitions are lost: others may have them already."""
    RESET_MEMBER = auto()
    """Join again as a new member. The partitions are lost."""
    FENCE = auto()
    """Another process has taken over our instance id: stop."""
    FAIL = auto()
    """Tell the application."""


REACTIONS: Final[Mapping[ErrorCode, Reaction]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: Reaction.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION: Reaction.FIND_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: Reaction.FIND_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    ErrorCode.MEMBER_ID_REQUIRED: Reaction.TAKE_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION: Reaction.RESET_GENERATION,
    ErrorCode.FENCED_MEMBER_EPOCH: Reaction.RESET_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RESET_MEMBER,
    ErrorCode.FENCED_INSTANCE_ID: Reaction.FENCE,
}
"""Whatever the request was; every other error is for the application."""

SPECIAL_REACTIONS: Final[Mapping[tuple[ApiKey, ErrorCode], Reaction]] = {
    # The group did not finish its last rebalance yet: nothing of ours is out of date.
    (ApiKey.JOIN_GROUP, ErrorCode.REBALANCE_IN_PROGRESS): Reaction.RETRY,
    (ApiKey.OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): Reaction.RETRY,
    # The epoch has gone on: the next heartbeat tells, and what we still have may be committed in it.
    (ApiKey.OFFSET_COMMIT, ErrorCode.STALE_MEMBER_EPOCH): Reaction.RETRY,
    # The group is gone, and we with it.
    (ApiKey.OFFSET_COMMIT, ErrorCode.GROUP_ID_NOT_FOUND): Reaction.RESET_GENERATION,
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, ErrorCode.GROUP_ID_NOT_FOUND): Reaction.RESET_GENERATION,
}


JOINING: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})


def reaction(api_key: ApiKey, code: ErrorCode) -> Reaction:
    """What `code` in the answer to `api_key` calls for."""
    return SPECIAL_REACTIONS.get((api_key, code)) or REACTIONS.get(code, Reaction.FAIL)


class Generation(NamedTuple):
    """By what the coordinator knows a member. `generation_id` is -1 outside of any generation."""

    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID


class Membership:
    """One member. `is_lost`: it had a generation that went away before its partitions were given up. `last_generation`
    is the one that was joined last, gone or not.

    Invariant: in STABLE there is a generation. `rejoin_reason` says why a stable member is to join again.
    """

    def __init__(self) -> None:
        self.state = MemberState.LEFT
        self.generation = self.last_generation = Generation()
        self.is_lost = False
        self.rejoin_reason: str | None = None

    @property
    def needs_join(self) -> bool:
        return self.state is MemberState.UNJOINED or (
            self.state is MemberState.STABLE and self.rejoin_reason is not None
        )

    @property
    def sends_heartbeats(self) -> bool:
        """While it joins, the coordinator waits for it or it for the coordinator: no heartbeat is needed (nor sent)."""
        return self.state is MemberState.STABLE

    def enter(self) -> None:
        """There is something to join for."""
        if self.state is MemberState.LEFT:
            self._move(MemberState.UNJOINED)

    def prepare(self) -> None:
        """JoinGroup is sent."""
        self.rejoin_reason = None
        if self.state is not MemberState.PREPARING:
            self._move(MemberState.PREPARING)

    def complete(self, generation: Generation) -> None:
        """JoinGroup was answered with a generation."""
        assert generation.generation_id != NO_GENERATION
        self._move(MemberState.COMPLETING)
        self.generation = self.last_generation = generation

    def settle(self) -> None:
        """SyncGroup was answered with an assignment."""
        self._move(MemberState.STABLE)

    def go_on(self, generation: Generation) -> None:
        """The coordinator has moved a stable member to another epoch (consumer protocol)."""
        assert self.state is MemberState.STABLE
        self.generation = self.last_generation = generation

    def rejoin(self, reason: str) -> None:
        """Join again, with what we have; no news to a member that joins already."""
        if self.state is MemberState.STABLE:
            self.rejoin_reason = self.rejoin_reason or reason

    def give_up_joining(self) -> None:
        """JoinGroup or SyncGroup led to nothing."""
        if self.state in (MemberState.PREPARING, MemberState.COMPLETING):
            self._move(MemberState.UNJOINED)

    def react(self, api_key: ApiKey, code: ErrorCode, sent: Generation) -> Reaction:
        """Take in an error in the answer to a request of generation `sent`.

        An answer that says that `sent` is over is no news once the member has gone on from there, nor while it joins:
        joining is what ended `sent`, and the answer to a commit may overtake the one to JoinGroup, which comes on a
        connection of its own. Who the coordinator does not know any more hears so from JoinGroup or SyncGroup.
        """
        todo = reaction(api_key, code)
        is_joining = self.state in (MemberState.PREPARING, MemberState.COMPLETING)
        if todo is Reaction.FENCE:
            self._move(MemberState.FENCED)
        elif todo in (Reaction.REJOIN, Reaction.FAIL):
            if api_key in JOINING:
                self.give_up_joining()
            elif todo is Reaction.REJOIN:
                self.rejoin(code.name)
        elif is_joining and api_key not in JOINING:
            pass
        elif sent == self.generation and self.state not in (MemberState.LEFT, MemberState.FENCED):
            if todo is Reaction.RESET_GENERATION:
                self._reset(self.generation.member_id)
            elif todo is Reaction.RESET_MEMBER:
                self._reset(NO_MEMBER_ID)
        return todo

    def take_member_id(self, member_id: str) -> None:
        """The coordinator gave us an id."""
        self.generation = Generation(self.generation.generation_id, member_id)

    def drop_out(self) -> None:
        """We left the group by ourselves, for want of polls, and will join again with the next one."""
        self._reset(NO_MEMBER_ID)

    def leave(self) -> None:
        """For good, or until the next subscription. What was read before was read in `last_generation` all the same."""
        if self.state is not MemberState.FENCED:
            self._move(MemberState.LEFT)
        self.generation = Generation()
        self.is_lost = False
        self.rejoin_reason = None

    def assign_by_hand(self) -> None:
        """What is read from now on is read outside of the group."""
        self.last_generation = Generation()

    def partitions_given_up(self) -> None:
        """What was lost is known to the application."""
        self.is_lost = False

    def _reset(self, member_id: str) -> None:
        self.is_lost = self.is_lost or self.generation.generation_id != NO_GENERATION
        self.generation = Generation(NO_GENERATION, member_id)
        self.rejoin_reason = None
        self._move(MemberState.UNJOINED)

    def _move(self, state: MemberState) -> None:
        assert self.state in PREVIOUS[state], f"a member cannot go from {self.state.name} to {state.name}"
        self.state = state
