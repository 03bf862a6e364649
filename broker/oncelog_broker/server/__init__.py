"""The edge: sockets in, requests dispatched, responses out in order.

`listener` accepts and sweeps, `secured` is TLS in between, whose `handshakes` have turns, and `gate` what may be sent
before a login. `connections` are those that are open, `connection` is one of them: its requests in order, between the
`receiving` side, which cuts frames, and the `answer_queue`, from which answers leave in order, by an `outlet`; in the
`rota` stands who has more to do than a turn of the loop allows. `limits` is what one client may take, and `ledger` who
holds how much memory; `connection_rates` how fast connections may be made. `throttling` holds clients to their quotas,
by what the `metered` context of a request counts. `refused_batches` are those that producers send again, first of all.
`dispatch` goes from header (`known_header`) to handler by one of the `routes`, and from its answer to bytes, or by a
`lane`, of which `lanes/` has those that there are, past both; `served`
says which APIs and versions there are, `handlers/` has one file per API key. `context` says who asks and how a handler
answers, `services/` what the handlers of each room may reach. `faulty` is what a test does to requests, and `refusals`
how they are refused then. `fetch_sessions` are incremental fetches, `fetch_reads` what is read for consumers and for
followers.

What several handlers share: `named` (things that a request names twice), `parts` (requests about very many partitions),
`topic_ids`, `config_resources`, `acl_fields`, `quota_fields`, `transactional_errors`, `shown` (waiting for a change to
be in effect) and `topic_creation` (of topics that no client asked for by name: by the controller, wherever that is).
`forwarding` passes on to the controller what a client asked another broker. `controller_calls` are what this broker
asks of the controller on its own behalf, `log_end_calls` what it asks of others as the controller, `leader_hints` what
it tells those who should ask another one, and `nearest_replica` where a consumer of another rack should read.
"""
