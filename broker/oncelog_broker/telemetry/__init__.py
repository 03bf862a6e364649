"""The metrics that clients push to this broker (KIP-714), from the subscription to the series for Prometheus.

All modules are pure; the handlers in `server/cluster/` pass the time and the cluster image to them. `subscriptions`
selects the metrics that a client shall push. `client_instances` has the clients that have asked, and enforces the push
interval. `metrics_data` decodes a push, and `pushed_series` keeps the values until they are too old. `client_telemetry`
has all of these for one broker.

Every limit on what clients can make this broker keep is a constant of one of these modules.
"""
