"""Metrics of streaming queries, for Prometheus, Grafana and `oncelog console`.

    from oncelog_pipeline.metrics import serve_query_metrics

    serve_query_metrics(spark, port=9405)       # http://127.0.0.1:9405/metrics, for every query of this session

query_metrics.py  (no Spark) counters of each query, and the metrics made of them
listener.py       the listener that Spark calls with the progress of queries
http_server.py    /metrics, for few clients at a time
open_transactions.py  asks the cluster for the open transactions of a query
serving.py        `serve_query_metrics`: combines the other modules for a session
"""

from oncelog_pipeline.metrics.serving import MetricsServer, serve_query_metrics

__all__ = ["MetricsServer", "serve_query_metrics"]
