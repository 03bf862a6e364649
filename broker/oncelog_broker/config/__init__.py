"""The declarations of Kafka's configuration keys. Each key is declared once, with type, default, range and meaning.

`declared` defines the class of a key. The keys are declared in `broker_keys`, `zookeeper_keys`, `leadership_keys`,
`topic_defaults` (broker keys that topics inherit), `topic_keys`, `inert_topic_keys` (Kafka's topic keys without effect
in oncelog), `effectless_keys` (Kafka's broker keys without effect; `effectless_warnings` logs them), `throttle_keys`
(for brokers and topics), `group_keys` (for brokers and groups), `share_keys` (for share groups), `streams_keys` (for
streams groups), `transaction_keys` (for transactions V2), `client_metrics_keys` (for subscriptions of client metrics),
`quota_keys`, `security_keys`, `authorizer_keys` and `http_keys`. `bounded_keys` declares keys that groups may override
within bounds. A listener may override keys of `security_keys`: `overrides` parses the names of the overriding settings,
and `listener_config` resolves the effective values. `secret` is the value of a password key, and `references` resolves
`${...}` values. `load` reads file, environment and command line into a `broker_config`. `resolve` finds the effective
value of a key and its source, `stored` replaces unreadable values from the metadata store, `alter` checks changes, and
`listeners` parses addresses.
"""
