"""Logging: `logs` (structured, quiet by default), `log_levels` (the levels of loggers, changed while the broker runs),
`log_writer` (the thread that writes lines). Counters for `metrics/`:
`topic_traffic`, `request_times`, `loop_watch`."""
