"""Background work on logs between requests, and the controlled shutdown.

`maintenance` applies retention, flushes, writes checkpoints and expires producer ids; `cleaning` is the log cleaner
(compaction); `flushing` syncs a log without blocking the event loop. `controlled_shutdown` moves leadership to other
brokers before this broker stops.
"""
