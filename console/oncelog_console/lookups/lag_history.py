"""Samples the positions and the lag of groups every few seconds. The samples are kept in memory, and their number is
limited.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog import TopicPartition
from oncelog.admin import LATEST_TIMESTAMP, Admin
from oncelog.admin.groups import SHARE, ListedGroup
from oncelog.cli.running import describe
from oncelog.cli.top_snapshot import lag_of
from oncelog.clock import now_ms
from oncelog.errors import ConnectionFailed, KafkaError, PartialFailure
from oncelog_console.limits import MAX_SAMPLED_GROUPS, SAMPLE_SECONDS, SAMPLES
from oncelog_console.link import Link
from oncelog_console.lookups.share_groups import share_lag

logger = logging.getLogger(__name__)


class LagPoint(NamedTuple):
    """A sample: its time in ms since the epoch, and the lag in records; a lag of None means unknown."""

    at_ms: int
    lag: int | None


@dataclass(slots=True)
class GroupHistory:
    """`committed`: the committed offsets at the last sample."""

    group_id: str
    state: str
    protocol_type: str
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    points: deque[LagPoint] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    @property
    def lag(self) -> int | None:
        return self.points[-1].lag if self.points else None


class LagHistory:
    """`groups`: the histories by group id. `problem`: the reason why the last sample failed; None if it did not fail.
    `left_out`: the number of groups that are not sampled.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self.groups: dict[str, GroupHistory] = {}
        self.problem: str | None = None
        self.left_out = 0
        self.samples = 0
        self._sampling = asyncio.Lock()

    async def run(self) -> None:
        """Sample the groups every SAMPLE_SECONDS seconds, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(SAMPLE_SECONDS * 6):
                    await self.sample()
                self.problem = None
            except TimeoutError:
                self.problem = "the groups did not answer in time"
            except KafkaError as error:
                self.problem = describe(error, self._link.bootstrap)
            except Exception:
                # An unexpected exception is a bug in the console. Log the exception, and continue to sample.
                logger.exception("the groups could not be read")
                self.problem = "the groups could not be read: see the console's own log"
            await asyncio.sleep(SAMPLE_SECONDS)

    async def sample(self) -> None:
        """Sample all groups. An older sample never replaces a newer sample. Raises KafkaError."""
        async with self._sampling:
            await self._sample()

    async def _sample(self) -> None:
        admin = await self._link.admin()
        listed = await admin.groups.list()
        self.left_out = max(0, len(listed) - MAX_SAMPLED_GROUPS)
        listed = listed[:MAX_SAMPLED_GROUPS]
        shares = {group.group_id: await _lag_of_shares(admin, group.group_id) for group in listed if is_share(group)}
        committed = {group.group_id: await _committed(admin, group.group_id) for group in listed if not is_share(group)}
        ends = await _ends(admin, {where for offsets in committed.values() for where in offsets or ()})
        at_ms = now_ms()
        known = self.groups
        self.groups = {}
        for group in listed:
            history = known.get(group.group_id) or GroupHistory(group.group_id, group.state, group.protocol_type)
            history.state, history.protocol_type = group.state, group.protocol_type
            offsets = committed.get(group.group_id)
            if offsets is not None:
                history.committed = offsets
            lag = shares.get(group.group_id)
            if offsets is not None:
                lag = lag_of({tuple(where): offset for where, offset in offsets.items()}, ends)
            history.points.append(LagPoint(at_ms, lag))
            self.groups[group.group_id] = history
        self.samples += 1

    def at(self, partition: TopicPartition) -> dict[str, int]:
        """Return the positions of groups in a partition at the last sample, as offsets by group id."""
        return {
            group_id: history.committed[partition]
            for group_id, history in self.groups.items()
            if partition in history.committed
        }


def is_share(group: ListedGroup) -> bool:
    return group.group_type == SHARE


async def _lag_of_shares(admin: Admin, group_id: str) -> int | None:
    """Return the lag of a share group; None if it is unavailable. Raises ConnectionFailed."""
    try:
        return share_lag((await admin.shares.offsets(group_id)).values())
    except ConnectionFailed:
        raise
    except KafkaError:
        return None


async def _committed(admin: Admin, group_id: str) -> Mapping[TopicPartition, int] | None:
    """Return the committed offsets of a group; None if they are unavailable. Raises ConnectionFailed."""
    try:
        return {where: known.offset for where, known in (await admin.groups.offsets(group_id)).items()}
    except ConnectionFailed:
        raise
    except KafkaError:
        return None


async def _ends(admin: Admin, partitions: set[TopicPartition]) -> dict[tuple[str, int], int]:
    """Return the end offsets of those partitions that exist and have leaders. Raises KafkaError."""
    if not partitions:
        return {}
    topics = set(await admin.list_topics(include_internal=True))
    wanted = {where: LATEST_TIMESTAMP for where in partitions if where.topic in topics}
    try:
        answers = await admin.list_offsets(wanted)
    except PartialFailure as failure:
        answers = dict(failure.results)
    return {(where.topic, where.partition): answer.offset for where, answer in answers.items()}
