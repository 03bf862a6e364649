"""The handlers of page requests.

- `page_request` has code that all pages share: concurrency, timeouts, parameters, forms.
- `login` serves /login, /logout, /oidc/start and /oidc/callback.
- `clusters` serves / if there are several clusters.
- `brokers` serves /, or /c/NAME/ if there are several clusters.
- `topics` serves /topics and /topic.
- `partition` serves /partition: the picture of a log, and the producers.
- `record_search` reads the form above the records.
- `records` serves /records, /record and /download: records by position, offset, time or search.
- `tail` serves /tail: new records, as server-sent events.
- `groups` serves /groups and /group.
- `resets` serves /group/reset: the plan of an offset reset, and its execution.
- `transactions` serves /transactions.
- `queries` serves /queries and /query: streaming queries of Spark.
- `connect` serves /connect, /connector and /connector/restart.
- `access` serves /acls, /users and /quotas.
- `changes` serves /change/KIND: the form of a change, its preview, and its execution.
- `ends` serves /transaction/abort and /transaction/fence: confirmation, and execution.
"""
