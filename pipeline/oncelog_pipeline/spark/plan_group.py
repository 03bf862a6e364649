"""Stores the plans of one stream in the cluster, as committed offsets of a separate group without members."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from oncelog import TopicPartition
from oncelog.errors import ErrorCode, KafkaError, PartialFailure
from oncelog_pipeline.options.source_options import SourceOptions
from oncelog_pipeline.source.plans import GROUP_PREFIX, Plans, plans_from
from oncelog_pipeline.spark.connections import connections

REFUSALS: Final = frozenset({ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED})

logger = logging.getLogger(__name__)


class PlanGroup:
    """The plans of `stream` that are stored in the cluster. Without the right to use the group, no plans are committed,
    and a warning says so.
    """

    def __init__(self, options: SourceOptions, stream: str, plans: Plans, *, is_allowed: bool = True) -> None:
        self._options = options
        self.stream = stream
        self.plans = plans
        self._is_allowed = is_allowed

    @classmethod
    async def read(cls, options: SourceOptions, stream: str) -> PlanGroup:
        """Read the plans of a stream from the cluster. Raises KafkaError."""
        admin = await connections().admin(options)
        try:
            committed = await admin.groups.offsets(_group(stream))
        except KafkaError as error:
            if not _is_refused(error):
                raise
            _warn_refused(stream, error)
            return cls(options, stream, Plans(), is_allowed=False)
        return cls(options, stream, plans_from({partition: each.metadata for partition, each in committed.items()}))

    async def record(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
        """Commit the plan of a batch, unless the cluster has the plan already. If the commit fails, a warning says why,
        and the batch continues.
        """
        plans = self.plans.with_batch(start, end)
        if plans is self.plans or not self._is_allowed:
            return
        admin = await connections().admin(self._options)
        try:
            await admin.groups.alter_offsets(_group(self.stream), plans.to_commit())
        except KafkaError as error:
            if _is_refused(error):
                self._is_allowed = False
                _warn_refused(self.stream, error)
            else:
                logger.warning("%s: the plan of a batch was not committed: %s", _group(self.stream), error)
        else:
            self.plans = plans


def _group(stream: str) -> str:
    return GROUP_PREFIX + stream


def _is_refused(error: KafkaError) -> bool:
    errors = error.errors.values() if isinstance(error, PartialFailure) else [error]
    return any(each.code in REFUSALS for each in errors)


def _warn_refused(stream: str, error: KafkaError) -> None:
    logger.warning(
        "group %s: plans of batches are not kept, so where the checkpoint loses its last entry in a power cut, a sink"
        " refuses the batch that is planned in its place: give the right Read on groups with the prefix %s: %s",
        _group(stream),
        GROUP_PREFIX,
        error.message,
    )
