"""Elects preferred leaders periodically (auto.leader.rebalance.enable)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from oncelog_broker.controller.partitions import PartitionController
from oncelog_broker.controller.store_errors import translated
from oncelog_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


async def balance_leaders(term: Callable[[], PartitionController], percentage: int) -> None:
    """Rebalance the leaders of all partitions once, if this broker is the controller. The next rebalance retries a
    failed election. `percentage`: leader.imbalance.per.broker.percentage."""
    try:
        with translated("the leaders of partitions"):
            moved = await term().balance(percentage)
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            logger.warning("preferred leaders were not elected", extra={"reason": error})
        return
    if moved:
        logger.info("preferred leaders were elected", extra={"count": moved})
