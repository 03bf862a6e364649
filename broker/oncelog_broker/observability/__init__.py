"""What the broker tells of itself: `logs` (structured, quiet by default), `log_writer` (the thread they leave by).

And what it counts while it works, for `metrics/` to show: `topic_traffic`, `request_times`, `loop_watch`.
"""
