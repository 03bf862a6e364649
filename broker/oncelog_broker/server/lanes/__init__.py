"""Fast lanes: they serve requests that a connection sends again and again, without decoding them or building answers.

A lane (see `oncelog_broker.server.net.lane`) compares a request with those that its connection sent before and that
were served in the usual way. Where only the expected places differ, such as the correlation id and the records, it does
what the handler would do and fills the answer in. In every other case it declines before anything is done, and the
usual way takes the request. What is compared and filled in comes from the declarations of the messages
(`oncelog_protocol.templates`).

Every rule holds in a lane as in the usual way, and property tests compare the two: answers, files, metrics. Fail points
strike in both, and what a client produces is charged to its quota in both. Lanes are closed where a client has a quota
of the processor's time or of what it fetches, where somebody still has to log in, and while a test has set faults for
requests or answers (`oncelog serve --fail-control`).

`produce` is the lane of Produce, `fetch` the lane of Fetch: `one_fetch` serves one of its requests, and `fetch_answers`
has the bytes of its answers.
"""
