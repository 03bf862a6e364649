"""Implements `serve_query_metrics`, which serves /metrics with the streaming queries of a Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from oncelog_pipeline.metrics.http_server import MetricsHttpServer
from oncelog_pipeline.metrics.open_transactions import open_transactions_of
from oncelog_pipeline.metrics.query_metrics import QueryMetrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_PORT: Final = 9405
LOOPBACK: Final = "127.0.0.1"


class MetricsServer:
    """A running HTTP server for /metrics. `url` is its address; `close` stops the server and the counting."""

    def __init__(self, spark: SparkSession, server: MetricsHttpServer, listener: Any) -> None:
        self._spark = spark
        self._server = server
        self._listener = listener
        host = server.server_name
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"

    def close(self) -> None:
        """Stop counting and serving. The Spark session may have been stopped before."""
        self._server.close()
        if self._spark.sparkContext._jsc is not None:  # a stopped session has no listeners any more
            self._spark.streams.removeListener(self._listener)


def serve_query_metrics(
    spark: SparkSession,
    port: int = DEFAULT_PORT,
    host: str = LOOPBACK,
    *,
    sink: Mapping[str, str] | None = None,
) -> MetricsServer:
    """Serve http://HOST:PORT/metrics with all streaming queries of this session, until the server is closed or the
    driver ends.

    Port 0 selects a free port. With `sink`, the options of these queries' exactly-once sink, /metrics also has the
    number of open transactions: each scrape requests them from the cluster. Raises OSError if the server cannot listen
    on that address, and OptionError for invalid options.
    """
    from oncelog_pipeline.metrics.listener import MetricsListener

    metrics = QueryMetrics(None if sink is None else open_transactions_of(sink))
    server = MetricsHttpServer(host, port, metrics)
    listener = MetricsListener(metrics)
    spark.streams.addListener(listener)
    server.start()
    return MetricsServer(spark, server, listener)
