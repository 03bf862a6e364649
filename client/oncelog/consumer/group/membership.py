"""The state machine of a member of a group, and its reactions to errors. Pure: no clock, no I/O.

                 ┌───────────────────── UNJOINED ◄──────────────────────┐
                 ▼                                                      │ the generation is gone,
    ┌──────► PREPARING ──JoinGroup response──► COMPLETING ──SyncGroup response──► STABLE
    │            │                                 │                                │
    └────────────┴───────────── the group rebalances: join again ───────────────────┘

FENCED (another process uses the same instance id) is final; LEFT lasts until the next subscription. A member keeps its
generation while it joins the next one: it may still commit in its generation, and cooperative members continue to read.
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
    """The state of a member, and the response for which the member waits in that state."""

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
    """The reaction of a member to an error."""

    RETRY = auto()
    """Repeat the request after the backoff."""
    FIND_COORDINATOR = auto()
    """Look up the coordinator, and repeat the request."""
    TAKE_MEMBER_ID = auto()
    """Join again with the member id from the response (KIP-394)."""
    REJOIN = auto()
    """Join the next generation; partitions are revoked as in any rebalance."""
    RESET_GENERATION = auto()
    """Join again as the same member. The partitions are lost, and other members may have them."""
    RESET_MEMBER = auto()
    """Join again as a new member. The partitions are lost."""
    FENCE = auto()
    """Another process uses the same instance id: stop."""
    FAIL = auto()
    """Raise the error to the application."""


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
"""Reactions for every request; other errors are raised to the application."""

SPECIAL_REACTIONS: Final[Mapping[tuple[ApiKey, ErrorCode], Reaction]] = {
    # The group's last rebalance has not finished, so the response does not mean that the member's generation is
    # outdated.
    (ApiKey.JOIN_GROUP, ErrorCode.REBALANCE_IN_PROGRESS): Reaction.RETRY,
    (ApiKey.OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): Reaction.RETRY,
    # The member's epoch has changed. The next heartbeat returns the new epoch, in which the partitions that the member
    # still has
    # may be committed.
    (ApiKey.OFFSET_COMMIT, ErrorCode.STALE_MEMBER_EPOCH): Reaction.RETRY,
    # The group no longer exists, so the membership has ended.
    (ApiKey.OFFSET_COMMIT, ErrorCode.GROUP_ID_NOT_FOUND): Reaction.RESET_GENERATION,
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, ErrorCode.GROUP_ID_NOT_FOUND): Reaction.RESET_GENERATION,
}


JOINING: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})


def reaction(api_key: ApiKey, code: ErrorCode) -> Reaction:
    """Return the reaction to `code` in a response to `api_key`."""
    return SPECIAL_REACTIONS.get((api_key, code)) or REACTIONS.get(code, Reaction.FAIL)


class Generation(NamedTuple):
    """The values by which the coordinator identifies a member. `generation_id` is -1 without a generation."""

    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID


class Membership:
    """The membership of one consumer. `is_lost` means that the generation ended before its partitions were revoked.
    `last_generation` is the last generation that the member joined.

    Invariant: a member in the state STABLE has a generation. `rejoin_reason` says why a stable member must rejoin.
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
        """Whether the member sends heartbeats; a joining member needs none."""
        return self.state is MemberState.STABLE

    def enter(self) -> None:
        """Join the group, because the application has subscribed."""
        if self.state is MemberState.LEFT:
            self._move(MemberState.UNJOINED)

    def prepare(self) -> None:
        """Record that JoinGroup is sent."""
        self.rejoin_reason = None
        if self.state is not MemberState.PREPARING:
            self._move(MemberState.PREPARING)

    def complete(self, generation: Generation) -> None:
        """Record that the member has joined the generation in the response to JoinGroup."""
        assert generation.generation_id != NO_GENERATION
        self._move(MemberState.COMPLETING)
        self.generation = self.last_generation = generation

    def settle(self) -> None:
        """Record that the member has received its assignment in the response to SyncGroup."""
        self._move(MemberState.STABLE)

    def go_on(self, generation: Generation) -> None:
        """Record that the coordinator has moved a stable member to another epoch (consumer protocol)."""
        assert self.state is MemberState.STABLE
        self.generation = self.last_generation = generation

    def rejoin(self, reason: str) -> None:
        """Rejoin and keep the partitions; no effect on a member that is already joining."""
        if self.state is MemberState.STABLE:
            self.rejoin_reason = self.rejoin_reason or reason

    def give_up_joining(self) -> None:
        """Record that JoinGroup or SyncGroup failed."""
        if self.state in (MemberState.PREPARING, MemberState.COMPLETING):
            self._move(MemberState.UNJOINED)

    def react(self, api_key: ApiKey, code: ErrorCode, sent: Generation) -> Reaction:
        """React to an error in the response to a request of generation `sent`.

        A response that says that generation `sent` has ended is ignored in a later generation and while the member
        joins. Joining has already ended generation `sent`, and the response to a commit may arrive before the response
        to JoinGroup, which uses another connection. An expelled member learns of the expulsion from JoinGroup or
        SyncGroup.
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
        """Adopt the member id that the coordinator assigned."""
        self.generation = Generation(self.generation.generation_id, member_id)

    def drop_out(self) -> None:
        """Leave the group because the application does not poll; the next poll joins again."""
        self._reset(NO_MEMBER_ID)

    def leave(self) -> None:
        """Leave the group permanently, or until the next subscription. Records that were read before belong to
        `last_generation`.
        """
        if self.state is not MemberState.FENCED:
            self._move(MemberState.LEFT)
        self.generation = Generation()
        self.is_lost = False
        self.rejoin_reason = None

    def assign_by_hand(self) -> None:
        """Leave the group's generation: from now on partitions are assigned by hand."""
        self.last_generation = Generation()

    def partitions_given_up(self) -> None:
        """Record that the application has learned of the lost partitions."""
        self.is_lost = False

    def _reset(self, member_id: str) -> None:
        self.is_lost = self.is_lost or self.generation.generation_id != NO_GENERATION
        self.generation = Generation(NO_GENERATION, member_id)
        self.rejoin_reason = None
        self._move(MemberState.UNJOINED)

    def _move(self, state: MemberState) -> None:
        assert self.state in PREVIOUS[state], f"a member cannot go from {self.state.name} to {state.name}"
        self.state = state
