"""A consumer as a member of a group.

membership.py      (pure) where a member stands, and what each error code means to it
subscription.py    (pure) subscriptions and assignments, as members exchange them
assignors/         (pure) who reads which partition
interest.py        (pure) the topics that the application asked for, by name or by pattern
commits.py         committed offsets: stored, fetched, stored again every now and then
coordinator_connection.py  the way to the coordinator, wherever it is
heartbeat.py       the one task: heartbeats, and whether the application still polls
joining.py         from JoinGroup to an assignment
coordinator.py     rebalances, as poll drives them: callbacks, joining, leaving
"""
