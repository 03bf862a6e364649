"""Membership in a consumer group.

membership.py      (pure) the state machine of a member, and its reaction to error codes
subscription.py    (pure) subscriptions and assignments in the consumer protocol
assignors/         (pure) assignment strategies
interest.py        (pure) the topics of a subscription, by name or by pattern
commits.py         committed offsets: commit, fetch, auto-commit
coordinator_connection.py  the connections to the coordinator
heartbeat.py       the heartbeat task, which also checks max.poll.interval.ms
joining.py         from JoinGroup to an assignment
holdings.py        what a member has: giving up and taking partitions, with commits and callbacks
coordinator.py     rebalances of the classic protocol, as poll drives them: callbacks, joining, leaving

Of the consumer protocol (KIP-848):

epoch_heartbeat.py (pure) what its heartbeats say
broker_assigned.py the member, as poll drives it: the broker assigns
members.py         which of the two a consumer is
"""
