"""The listener that Spark calls with the progress of queries."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from oncelog_pipeline.metrics.query_metrics import QueryMetrics

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

logger = logging.getLogger(__name__)


class MetricsListener(StreamingQueryListener):  # type: ignore[misc]
    """Adds each progress report of Spark to the metrics of its query. The listener catches its own errors, because a
    query must not fail for its metrics.
    """

    def __init__(self, metrics: QueryMetrics) -> None:
        self._metrics = metrics

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        _guarded(lambda: self._metrics.started(str(event.id), event.name))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        _guarded(lambda: self._metrics.progressed(json.loads(event.progress.json)))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        _guarded(lambda: self._metrics.ended(str(event.id), has_failed=event.exception is not None))


def _guarded(count: Callable[[], Any]) -> None:
    try:
        count()
    except Exception:
        logger.exception("could not count the progress of a query")
