"""Fast lanes serve requests that a connection repeats, without decoding the requests or building response objects.

A lane (see `oncelog_broker.server.net.lane`) compares a request with earlier requests of the same connection that were
decoded and passed to a handler (the usual way). If only the expected fields differ, such as the correlation id and the
records, the fast lane has the same effects as the handler, and fills in the response. If other fields differ, the fast
lane declines the request before it has any effect, and the request is decoded and passed to its handler. The
declarations of the messages determine which fields are compared and filled in
(`oncelog_protocol.templates`).

A fast lane follows every rule that the handler follows. Property tests compare the responses, files and metrics of the
fast lane with those of the handler. Fail points also work in fast lanes, and fast lanes also charge a client's records
to its quota. Fast lanes are off for clients with a quota on processor time or on fetched bytes, before a login, and
while a test has set faults for requests or responses (`oncelog serve --fail-control`).

`produce` is the lane of Produce: `produce_destination` has the partitions that a lane remembers, and `produce_waits`
the requests that wait for replicas or for the disk. `fetch` is the lane of Fetch: `one_fetch` serves one request, and
`fetch_answers` has the bytes of the responses. `heartbeat`, `consumer_group_heartbeat` and `offset_commit` are the
lanes of members of consumer groups, `add_partitions_to_txn` and `end_txn` the lanes of transactional producers;
`repeated` has the parts that these five share, and the limit of failed attempts to remember a request, which holds for
all lanes.
"""
