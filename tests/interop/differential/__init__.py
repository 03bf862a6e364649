"""Differential tests against Apache Kafka: Kafka and oncelog's broker get the same requests at the same time, and their
responses are compared.

- `messages` builds a request from plain data.
- `side` is one of the two brokers of a comparison, with the transcript (the list of its responses).
- `plain` converts a response to plain data, with symbols for values that must differ (ids, ports, times).
- `comparison` finds the differences between two transcripts.
- `scenario` defines a scenario, and runs it on both sides.
- `calls` sends the requests that scenarios send most often; `batches` creates record batches, and `members` sends the
requests of group members.
- `consumer_members` sends the requests of members of the new consumer protocol (KIP-848), `share_members` those of
share groups (KIP-932), and `streams_members` those of streams groups (KIP-1071).
- `scenarios/` has the scenarios by area, including `walks`, which are random sequences from a seed.
- `configured` has the settings of brokers with two-phase commit and two log directories.
- `logged_in` is a side on which every client must log in, for scenarios/secured.
- `register` defines a known difference; `known/` lists all of them by area, as rows of docs/differences.md.

`test_differential.py`, in the parent directory, runs the comparison; `test_differential_security.py` and
`test_differential_configured.py` run it with other settings.
"""
