"""From a request to a page.

page_request.py  what every page does: turns, time, parameters, forms
brokers.py       /
topics.py        /topics, /topic
partition.py     /partition: the picture of a log, producers
records.py       /records, /record: by position, offset, time, key
tail.py          /tail: records as they come, as server-sent events
groups.py        /groups, /group
resets.py        /group/reset: where it would move a group, then doing it
transactions.py  /transactions
queries.py       /queries, /query: streaming queries of Spark
ends.py          /transaction/abort, /transaction/fence: asking back, then doing it
"""
