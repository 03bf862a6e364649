"""The command `oncelog`. This package has its commands except `serve` and `dump`, which are entry points of the broker.

`main` is the entry point; `group` finds commands by name and imports only the one that runs: `topics`, `leaders`,
`produce`, `consume`, `groups`, `shares`, `txns`, `log_dirs`, `move_dir`, `reassign` (with `reassignment_throttle` and
`move_progress`), `brokers` (with `cluster_state`), `doctor` (with `broker_http`), `support` (with `support_archive`),
`explain`, `users`, `acls`, `quotas`, `configs`, `ping`, `profile` (with `profiles`), `top` (with `top_snapshot`),
`deletions` (of records and offsets), `bench` (with `bench_loads` and `bench_report`), `completion`. Shared: `running`
turns errors into messages and exit codes, `command_config` reads connection settings, `patience` reports why a command
makes no progress, `output` prints tables, `options` and `targets` are command line arguments, `standard_input` reads
without blocking, `value_formats` and `value_codecs` turn keys and values of `consume` and `produce` into JSON and back,
`streams` handles closed or full standard streams, `held_offsets` finds pending offsets of transactions. Pure:
`group_tables` (the tables of `groups describe`), `transaction_words` (descriptions of open transactions), `offsets`,
`text_records`, `json_records`, `reset_plan` (the new offsets of `groups reset`; `group_positions` queries the cluster
for them), `reassignment_plan` (the plan of `reassign`), `balance_plan` (the plans of `brokers`), `health_checks` (the
findings of `doctor`) and `redaction` (takes secrets out of a support bundle).
"""
