"""Kafka's configuration keys, each declared once: type, default, range, meaning.

`declared` is the machinery; the declarations are `broker_keys`, with `zookeeper_keys`, `leadership_keys` and
`topic_defaults` (the broker keys that topics inherit), `topic_keys` and `inert_topic_keys` (of Kafka's, without
effect), `effectless_keys` (those of Kafka's brokers; `effectless_warnings` names them in the log), `throttle_keys` (of
brokers and of topics), `group_keys` (of brokers and of groups), `quota_keys`, `security_keys`, which single listeners
may have of their own (`overrides`; `listener_config` says which value holds), `authorizer_keys` and `http_keys`.
`secret` is the value of a password, `references` gets values from files and the environment. `load` reads them at
start-up from file, environment and command line into a `broker_config`, `resolve` says which value holds and where it
came from, `stored` what holds in the place of a value in the metadata store that cannot be read, `alter` checks
changes, `listeners` reads the addresses."""
