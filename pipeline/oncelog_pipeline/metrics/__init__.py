"""Metrics of streaming queries, for Prometheus, Grafana and `oncelog console`.

    from oncelog_pipeline.metrics import serve_query_metrics

    serve_query_metrics(spark, port=9405)       # http://127.0.0.1:9405/metrics, for every query of this session

- `query_metrics.py` (no Spark) counts the progress of each query, and creates metrics from the counters.
- `listener.py` has the listener that Spark calls with the progress of queries.
- `http_server.py` serves /metrics to a few clients.
- `open_transactions.py` requests the open transactions of a query from the cluster.
- `serving.py` implements `serve_query_metrics`, which combines the other modules for a session.
"""

from oncelog_pipeline.metrics.serving import MetricsServer, serve_query_metrics

__all__ = ["MetricsServer", "serve_query_metrics"]
