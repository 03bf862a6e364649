"""The `oncelog` command: its own commands here; serve and dump come from the broker as entry points.

`main` finds commands by name and loads only the one that runs: `topics`, `leaders`, `produce`, `consume`, `groups`,
`txns`, `log_dirs`, `reassign` (with `reassignment_throttle`), `explain`, `users`, `acls`, `quotas`, `configs`,
`ping`, `top` (with `top_look`), `bench` (with `bench_loads` and `bench_report`), `completion`. What they share:
`running` turns errors into messages and exit codes, `command_config` reads how to connect, `patience` says why one does
not come on, `output` prints tables, `options` and `targets` are their arguments, `standard_input` reads without
blocking, `streams` fills in for standard streams that are closed or full, `held_offsets` finds and shows offsets that
transactions hold. Pure: `group_tables` (what `groups describe` shows), `transaction_words` (what is said of an open
transaction), `offsets`, `text_records`,
`json_records`, `reset_plan` (where `groups reset` moves a group; `group_positions` asks the cluster for that) and
`reassignment_plan` (where `reassign` moves partitions).
"""
