"""What a broker does between requests: with its logs, and before it stops.

`maintenance` applies retention, flushes, writes checkpoints and forgets silent producers; `cleaning` compacts;
`flushing` syncs a log beside the event loop. `controlled_shutdown` moves leadership to other brokers.
"""
