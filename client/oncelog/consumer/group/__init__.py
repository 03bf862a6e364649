"""A consumer as a member of a group.

membership.py      (pure) where a member stands, and what each error code means to it
subscription.py    (pure) subscriptions and assignments, as members exchange them
assignors/         (pure) who reads which partition
interest.py        (pure) the topics that the application asked for, by name or by pattern
commits.py         committed offsets: stored, fetched, stored again every now and then
coordinator_connection.py  the way to the coordinator, wherever it is
heartbeat.py       the one task: heartbeats, and whether the application still polls
joining.py         from JoinGroup to an assignment
holdings.py        what a member has: giving up and taking partitions, with commits and callbacks
coordinator.py     rebalances of the classic protocol, as poll drives them: callbacks, joining, leaving

Of the consumer protocol (KIP-848):

epoch_heartbeat.py (pure) what its heartbeats say
broker_assigned.py the member, as poll drives it: the broker assigns
members.py         which of the two a consumer is
"""
