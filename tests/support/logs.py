"""Helpers for tests of a log manager."""

from __future__ import annotations

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_protocol.errors import KafkaError


def make_log(logs: LogManager, topic: str, partition: int, topic_id: bytes | None, config: LogConfig) -> PartitionLog:
    """Return the log, which is created if it does not exist. Raises the error that `LogManager.finish_opening` returns
    for the log.
    """
    opening = logs.begin_opening([WantedLog(topic, partition, topic_id, config)])
    opening.run()
    (result,) = logs.finish_opening(opening)
    if isinstance(result, KafkaError):
        raise result
    return result
