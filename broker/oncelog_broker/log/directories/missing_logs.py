"""Decides at startup what to do about partitions of this broker that have no log.

A missing log stays offline if a checkpoint shows that the log had records: if the broker created a new log, as Kafka
does, it would assign the same offsets a second time. A missing log also stays offline if a data directory is lost,
since the log may have been in that directory. Any other missing log may never have existed, because the creation of its
topic may have been interrupted; it is created, empty, and one warning lists all of these partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from oncelog_broker.log.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
)
from oncelog_broker.log.directories.data_directory import DataDirectory
from oncelog_protocol.light_classes import NamedTuple

logger = logging.getLogger(__name__)

NAMES_IN_A_LINE: Final = 10
"""The maximum number of partitions that one log line names."""


class OfflineLog(NamedTuple):
    """A missing log that stays offline: the data directory that it belongs to, and the reason."""

    key: TopicPartition
    home: DataDirectory
    failure: str


def offline_logs(
    missing: Iterable[TopicPartition],
    directories: Sequence[DataDirectory],
    deleted: Collection[str],
    lost: Collection[str],
    replicated: Callable[[TopicPartition], bool],
) -> Iterator[OfflineLog]:
    """Yield the missing logs that stay offline, and warn of the others. `deleted` has the names of the logs that are
    deleted but not freed, `lost` the paths of lost data directories. `replicated` (function) returns whether a
    partition also has replicas on other brokers.
    """
    created: dict[bool, list[str]] = {}
    for key in missing:
        name = f"{key[0]}-{key[1]}"
        offset, _, home = max((each.noted_offset(key), -number, each) for number, each in enumerate(directories))
        if offset > 0 and name not in deleted:  # (the checkpoint entry of a deleted log remains for a while)
            path = home.join(name)
            failure = (
                f"{path} is missing, but the checkpoints show that it had records up to offset {offset}. Restore "
                "the directory. If the partition has other replicas, have one of them lead first (oncelog "
                "leaders elect): if this one leads without its records, the others lose theirs. Then, or if this "
                "is the only replica, accept the loss: delete the topic; or stop the broker, take the partition's "
                f"lines out of {RECOVERY_POINT_CHECKPOINT}, {HIGH_WATERMARK_CHECKPOINT} and "
                f"{LOG_START_OFFSET_CHECKPOINT} (their second line counts them), and start it"
            )
            logger.error("%s: offline: %s", path, failure)
            yield OfflineLog(key, home, failure)
        elif lost:
            failure = f"{name} has no log; it may be in {', '.join(lost)}, which is missing"
            logger.error("%s: offline: %s", name, failure)
            yield OfflineLog(key, directories[0], failure)
        else:
            created.setdefault(replicated(key), []).append(name)
    for is_replicated, names in created.items():
        logger.warning(
            "log.dirs has no logs of %d partitions of this broker, so new, empty logs are created. %s: %s",
            len(names),
            "If they had records, these are fetched from the other replicas, where one of them leads"
            if is_replicated
            else "If they had records, they are lost, unless they are in a directory that log.dirs no longer lists",
            " ".join(names[:NAMES_IN_A_LINE]) + (" ..." if len(names) > NAMES_IN_A_LINE else ""),
        )
