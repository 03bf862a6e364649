"""Handlers of what a client requests first: `api_versions` (the supported APIs), `describe_cluster` (the brokers), and
`update_features` (requests to change feature levels).

`get_telemetry_subscriptions` and `push_telemetry` serve the metrics that clients push; `services` declares what these
two may use.
"""
