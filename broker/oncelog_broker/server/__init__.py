"""The edge: sockets in, requests dispatched, responses out in order.

`listener` accepts and sweeps, `connections` are those that are open, `connection` is one of them; `limits` is what one
client may take. `dispatch` goes from header (`known_header`) to handler; `served` says which APIs and versions there
are, `handlers/` has one file per API key, and `context` says what a handler may reach. `answers` and `slices`: answers
that come later, and work that lets others in between. `fetch_sessions` are incremental fetches.

What several handlers share: `topic_ids`, `config_resources`, `transactional_errors`, and `shown` (waiting for a change
to be in effect).
"""
