"""Kafka's configuration keys, each declared once: type, default, range, meaning.

`declared` defines what a key is. The declarations are in `broker_keys`, `zookeeper_keys`, `leadership_keys`,
`topic_defaults` (broker keys that topics inherit), `topic_keys`, `inert_topic_keys` (Kafka's topic keys without effect
here), `effectless_keys` (Kafka's broker keys without effect; `effectless_warnings` logs them), `throttle_keys` (of
brokers and topics), `group_keys` (of brokers and groups), `share_keys` (of share groups), `streams_keys` (of streams
groups; `bounded_keys` makes keys that groups may override between bounds), `quota_keys`, `security_keys` (which
listeners may override: `overrides` parses the names, `listener_config` resolves the values), `authorizer_keys` and
`http_keys`. `secret` is the value of a password key, `references` resolves `${...}` values.
`load` reads file, environment and command line into a `broker_config`, `resolve` finds the effective value and its
source, `stored` replaces unreadable values of the metadata store, `alter` checks changes, `listeners` parses
addresses.
"""
