"""What a broker does between requests: with its logs, and before it stops.

`maintenance` applies retention, flushes, writes checkpoints and forgets silent producers; `cleaning` compacts;
`flushing` syncs a log beside the event loop. `departure` has others lead what this broker leads.
"""
