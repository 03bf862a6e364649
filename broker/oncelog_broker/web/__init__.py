"""The HTTP listener for metrics and health checks. The listener is off unless `http.listener` is set; only then uvicorn
and h11 are imported.

`http_service` is the service of one broker, `serving` assembles it, `http_listener` binds the socket and accepts
connections, `bounded` limits connections, `pages` are the responses (metrics and `health`), `document` generates
docs/metrics.md.
"""
