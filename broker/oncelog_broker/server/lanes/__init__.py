"""Fast lanes serve requests that a connection repeats, without decoding the requests or building response objects.

A lane (see `oncelog_broker.server.net.lane`) compares a request with requests of the same connection that were served
in the usual way before. If only the expected fields differ, such as the correlation id and the records, the lane does
what the handler would do and fills in the response. In every other case the lane declines before it has any effect, and
the request is served in the usual way. The declarations of the messages determine which fields are compared and filled
in (`oncelog_protocol.templates`).

A lane follows every rule of the usual way, and property tests compare the two: responses, files, metrics. Fail points
work in both ways, and in both ways a client's records are charged to its quota. Lanes are off for clients with a quota
on processor time or on fetched bytes, before a login, and while a test has set faults for requests or responses
(`oncelog serve --fail-control`).

`produce` is the lane of Produce, `fetch` the lane of Fetch: `one_fetch` serves one request of the Fetch lane, and
`fetch_answers` has the bytes of Fetch responses.
"""
