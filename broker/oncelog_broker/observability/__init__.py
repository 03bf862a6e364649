"""The modules for logging: `logs` (structured, quiet by default), `log_levels` (the levels of loggers, which can be
changed while the broker runs), `log_writer` (the thread that writes lines). The modules with counters for `metrics/`:
`topic_traffic`, `request_times`, `loop_watch`.
"""
