"""The modules for logging are `logs` (structured, quiet by default), `log_levels` (the levels of loggers, which can be
changed while the broker runs) and `log_writer` (the thread that writes lines). The modules with counters for `metrics/`
are `topic_traffic`, `request_times` and `loop_watch`.
"""
