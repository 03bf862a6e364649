"""What the tests of many logs share."""

from __future__ import annotations

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_protocol.errors import KafkaError


def make_log(logs: LogManager, topic: str, partition: int, topic_id: bytes | None, config: LogConfig) -> PartitionLog:
    """The log, made if there is none. Raises what is the result of `LogManager.finish_opening`."""
    opening = logs.begin_opening([WantedLog(topic, partition, topic_id, config)])
    opening.run()
    (result,) = logs.finish_opening(opening)
    if isinstance(result, KafkaError):
        raise result
    return result
