"""The metrics that clients push to this broker (KIP-714), from the subscription to the series for Prometheus.

All modules are pure; the handlers in `server/cluster/` pass the time and the cluster image to them. `subscriptions`
determines which metrics a client shall push. `client_instances` has the clients that have requested their subscription,
and enforces the push interval. `metrics_data` decodes a PushTelemetry request, and `pushed_series` stores the pushed
values until they are too old. `client_telemetry` combines these modules for one broker.

Each of these modules has constants that limit how much memory clients can use on this broker.
"""
