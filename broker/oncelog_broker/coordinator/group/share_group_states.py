"""The group coordinator's requests to share coordinators: initialize, describe, alter and delete the state of share
partitions.

Each change is logged in the group before the requests to the share coordinators, and again after the share coordinators
have made the change. If this broker fails between the two records, the next heartbeat or the administrator's next
request repeats the change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.assignments import Target
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.share.offsets_administration import Starts
from oncelog_broker.coordinator.group.share.share_group import ShareGroup
from oncelog_broker.coordinator.group.share.share_step import InitializeStates
from oncelog_broker.coordinator.runtime import CoordinatorRuntime
from oncelog_broker.coordinator.shard import Waiter
from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.coordinator.share.share_state import ShareState
from oncelog_broker.coordinator.share.share_state_calls import ShareStateCalls
from oncelog_broker.runtime.answers import Answer, settled
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

R = TypeVar("R")


class ShareGroupStates:
    """Changes and reads the state of the share partitions of share groups. `runtime` runs the state machines of groups,
    `calls` sends requests to the share coordinators.
    """

    def __init__(self, runtime: CoordinatorRuntime[GroupMachine], calls: ShareStateCalls, tasks: Tasks) -> None:
        self._runtime = runtime
        self._calls = calls
        self._tasks = tasks

    def begin(self, wanted: InitializeStates) -> None:
        """Start to initialize the share partitions that a member's heartbeat needs; errors are only logged."""
        self._tasks.spawn(f"states of share group {wanted.group_id}", self._begin(wanted))

    async def _begin(self, wanted: InitializeStates) -> None:
        errors = await self._initialize(wanted.group_id, wanted.state_epoch, wanted.starts)
        for key, error in errors.items():
            logger.warning("share partition not initialized", extra={"share_partition": key.text, "reason": error})
        outcome = await self._log_initialized(wanted.group_id, wanted.topics, errors)
        if isinstance(outcome, KafkaError):
            logger.warning(
                "initialized states of a share group could not be logged",
                extra={"group": wanted.group_id, "reason": outcome},
            )

    async def _initialize(self, group_id: str, state_epoch: int, starts: Starts) -> dict[ShareKey, KafkaError]:
        """Initialize share partitions at the offsets in `starts`. Returns the errors of the share partitions that could
        not be initialized.
        """
        results = await self._calls.initialize(
            {
                ShareKey(group_id, topic_id, partition): (state_epoch, start)
                for topic_id, partitions in starts.items()
                for partition, start in partitions.items()
            }
        )
        return {key: result for key, result in results.items() if isinstance(result, KafkaError)}

    async def _log_initialized(
        self, group_id: str, topics: Target, errors: Mapping[ShareKey, KafkaError]
    ) -> KafkaError | None:
        failed: dict[bytes, frozenset[int]] = {}
        for key in errors:
            failed[key.topic_id] = failed.get(key.topic_id, frozenset()) | {key.partition}
        done = {topic_id: partitions - failed.get(topic_id, frozenset()) for topic_id, partitions in topics.items()}
        return await self._write(group_id, lambda machine: (machine.share.on_initialized(group_id, done, failed), None))

    # --- methods that handle requests of administrators ---------------------------------------------------------------

    def is_share_group(self, group_id: str) -> Answer[bool]:
        """Whether the group is a share group; False also for a group that this broker does not coordinate."""
        return self._runtime.read(
            group_id, lambda machine: isinstance(machine.groups.get(group_id), ShareGroup), lambda error: False
        )

    async def describe(
        self, group_id: str, wanted: Target | None
    ) -> KafkaError | dict[ShareKey, ShareState | KafkaError]:
        """Return the states of the share partitions in `wanted` or, if `wanted` is None, of all share partitions that
        the group has initialized. A group that does not exist, or that is no share group, has no initialized share
        partitions, as in Kafka.
        """
        known = await self._states(group_id)
        if isinstance(known, KafkaError):
            if known.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                return known
            known = {}
        if wanted is not None:
            return await self._calls.summaries(_keys(group_id, wanted))
        return await self._calls.summaries(_keys(group_id, known))

    async def _states(self, group_id: str) -> KafkaError | Target:
        def query(machine: GroupMachine) -> KafkaError | Target:
            return machine.share.all_states(group_id)

        return await settled(self._runtime.read(group_id, query, KafkaError.as_value))

    async def alter(self, group_id: str, starts: Starts) -> KafkaError | dict[ShareKey, KafkaError]:
        """Initialize share partitions again at these offsets. Returns the errors of the share partitions that could not
        be initialized again.

        If a share partition cannot be initialized again, it keeps its present state, because without a state the group
        would start reading at share.auto.offset.reset.
        """
        before = await self._states(group_id)
        had: Target = {} if isinstance(before, KafkaError) else before
        epoch = await self._write(group_id, lambda machine: machine.share.alter_offsets(group_id, starts))
        if isinstance(epoch, KafkaError):
            return epoch
        errors = await self._initialize(group_id, epoch, starts)
        topics = {topic_id: frozenset(partitions) for topic_id, partitions in starts.items()}
        without = {key: error for key, error in errors.items() if not _stays(key, error, had)}
        return await self._log_initialized(group_id, topics, without) or errors

    async def delete_offsets(
        self, group_id: str, topic_ids: frozenset[bytes]
    ) -> KafkaError | dict[bytes, KafkaError | None]:
        """Delete the share partition states of topics. Returns an entry for each topic that had state: None if its
        state was deleted, otherwise the error.
        """
        found = await self._write(group_id, lambda machine: machine.share.delete_states(group_id, topic_ids))
        if isinstance(found, KafkaError):
            return found
        outcomes: dict[bytes, KafkaError | None] = dict.fromkeys(found)
        for key, result in (await self._calls.delete(_keys(group_id, found))).items():
            outcomes[key.topic_id] = outcomes[key.topic_id] or result
        gone = frozenset(topic_id for topic_id, error in outcomes.items() if error is None)
        noted = await self._write(
            group_id, lambda machine: (machine.share.states_deleted(group_id, gone, with_group=False), None)
        )
        return noted or outcomes

    async def delete_group(self, group_id: str) -> KafkaError | None:
        """Delete a share group without members, and the states of its share partitions."""
        found = await self._write(group_id, lambda machine: machine.share.delete_states(group_id, None))
        if isinstance(found, KafkaError):
            return found
        for result in (await self._calls.delete(_keys(group_id, found))).values():
            if isinstance(result, KafkaError):
                return result
        topics = frozenset(found)
        return await self._write(
            group_id, lambda machine: (machine.share.states_deleted(group_id, topics, with_group=True), None)
        )

    async def _write(self, group_id: str, operation: Callable[[GroupMachine], tuple[Effects, R]]) -> KafkaError | R:
        """Run an operation on the group's state machine. The operation returns (effects, result); this function returns
        the result when the effects are committed.
        """
        return await settled(self._runtime.write(group_id, partial(_operate, operation), KafkaError.as_value))


def _operate(
    operation: Callable[[GroupMachine], tuple[Effects, R]], machine: GroupMachine, waiter: Waiter[KafkaError | R]
) -> Effects:
    effects, result = operation(machine)
    effects.reply(waiter, result)
    return effects


def _stays(key: ShareKey, error: KafkaError, had: Target) -> bool:
    """Whether the share partition `key` still has its previous state after the share coordinator has responded with
    this error. `had` are the share partitions that had a state before the request.
    """
    return key.partition in had.get(key.topic_id, ()) and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _keys(group_id: str, topics: Target) -> list[ShareKey]:
    return [
        ShareKey(group_id, topic_id, partition)
        for topic_id, partitions in topics.items()
        for partition in sorted(partitions)
    ]
