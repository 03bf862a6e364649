"""Membership in a consumer group.

membership.py      (pure) the state machine of a member, and its reaction to error codes
subscription.py    (pure) subscriptions and assignments in the consumer protocol
assignors/         (pure) assignment strategies
interest.py        (pure) the topics of a subscription, by name or by pattern
commits.py         committed offsets: commit, fetch, auto-commit
coordinator_connection.py  the connections to the coordinator
heartbeat.py       the heartbeat task, which also checks max.poll.interval.ms
joining.py         from JoinGroup to an assignment
coordinator.py     rebalances, driven by poll: callbacks, joining, leaving
"""
