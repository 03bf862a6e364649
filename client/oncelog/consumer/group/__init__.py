"""Membership in a consumer group.

membership.py      (pure) the state machine of a member, and its reaction to error codes
subscription.py    (pure) subscriptions and assignments in the consumer protocol
assignors/         (pure) assignment strategies
interest.py        (pure) the topics of a subscription, by name or by pattern
commits.py         committed offsets: commit, fetch, auto-commit
coordinator_connection.py  the connections to the coordinator
heartbeat.py       the heartbeat task, which also checks max.poll.interval.ms
joining.py         sends JoinGroup and SyncGroup until the member has an assignment
holdings.py        the partitions of a member: revokes and adds them, with commits and callbacks
coordinator.py     rebalances of the classic protocol, driven by poll: callbacks, joining, leaving

The consumer protocol (KIP-848):

epoch_heartbeat.py (pure) the content of heartbeats broker_assigned.py a member whose partitions the broker assigns,
driven by poll
members.py         chooses the member class by group_protocol
"""
