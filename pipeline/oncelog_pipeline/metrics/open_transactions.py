"""Counts the open transactions of a query in the cluster that it writes to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from oncelog.errors import KafkaError
from oncelog_pipeline.options.sink_options import Delivery, sink_options
from oncelog_pipeline.sink.names import Query

if TYPE_CHECKING:
    from oncelog_pipeline.metrics.query_metrics import OpenTransactions

ASK_SECONDS: Final = 5.0
"""How long a scrape waits for the cluster's response, in seconds; after that time the scrape omits this metric."""

logger = logging.getLogger(__name__)


def open_transactions_of(options: Mapping[str, str]) -> OpenTransactions | None:
    """Return a function that counts the open transactions of a query whose sink has these options. If the options have
    a writeId, these are the transactions of writes inside foreachBatch. Returns None for deliveries other than
    exactly-once, because their transactions end with their task. Raises OptionError.
    """
    sink = sink_options(options)
    if sink.delivery is not Delivery.EXACTLY_ONCE:
        return None

    async def count(query: Query) -> int:
        from oncelog_pipeline.spark.connections import connections

        async with asyncio.timeout(ASK_SECONDS):
            cluster = await connections().cluster(sink)
            return len(await cluster.ongoing(query))

    def ask(query_id: str) -> int | None:
        from oncelog_pipeline.spark.connections import connections

        try:
            return connections().run(count(Query(query_id if sink.write_id is None else f"{query_id}.{sink.write_id}")))
        except (KafkaError, TimeoutError) as error:
            logger.warning("query %s: its open transactions cannot be counted: %s", query_id, error)
            return None

    return ask
