"""Handlers of the requests that a client sends first: `api_versions` (the supported APIs), `describe_cluster` (the
brokers), and `update_features` (requests to change feature levels).

`get_telemetry_subscriptions` and `push_telemetry` serve the metrics that clients push; `services` declares the parts of
the broker that these two handlers may use.
"""
