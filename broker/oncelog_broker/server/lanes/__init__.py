"""Fast lanes serve requests that a connection repeats, without decoding the requests or building response objects.

A lane (see `oncelog_broker.server.net.lane`) compares a request with requests of the same connection that were served
in the usual way (decoded and passed to a handler) before. If only the expected fields differ, such as the correlation
id and the records, the lane (fast path) does what the handler would do and fills in the response. In every other case
the fast lane (fast path) declines before it has any effect, and the request is served in the usual way (decoded and
passed to a handler). The declarations of the messages determine which fields are compared and filled in
(`oncelog_protocol.templates`).

A fast lane follows every rule of the usual way (decoding and handler), and property tests compare both ways: responses,
files, metrics. Fail points also work in fast lanes, and fast lanes also charge a client's records to its quota. Fast
lanes are off for clients with a quota on processor time or on fetched bytes, before a login, and while a test has set
faults for requests or responses (`oncelog serve --fail-control`).

`produce` is the lane of Produce, `fetch` the lane of Fetch: `one_fetch` serves one request of the Fetch lane, and
`fetch_answers` has the bytes of Fetch responses.
"""
