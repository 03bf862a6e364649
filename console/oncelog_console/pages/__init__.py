"""The handlers of page requests.

page_request.py  common to all pages: concurrency, timeouts, parameters, forms
login.py         /login, /logout, /oidc/start, /oidc/callback
clusters.py      / where there are several clusters
brokers.py       /, or /c/NAME/
topics.py        /topics, /topic
partition.py     /partition: the picture of a log, producers
record_search.py the form above records
records.py       /records, /record, /download: by position, offset, time, search
tail.py          /tail: new records, as server-sent events
groups.py        /groups, /group
resets.py        /group/reset: the plan of a reset, and its execution
transactions.py  /transactions
queries.py       /queries, /query: streaming queries of Spark
connect.py       /connect, /connector, /connector/restart
access.py        /acls, /users, /quotas
changes.py       /change/KIND: the form of a change, what it would do, and the change
ends.py          /transaction/abort, /transaction/fence: confirmation, and execution
"""
