"""Groups of the consumer protocol (KIP-848): the broker assigns partitions, and members move to their target
assignments step by step with their heartbeats. Pure.

`member` and `consumer_group` are the state, which changes only when a logged record is applied to it (`replay`); `step`
is the context of one operation. A heartbeat goes through `heartbeat` (request and response), `epochs` (which epochs are
valid), `change` (the changes of a step, in order), `regexes` (subscriptions by regular expression), `target` (when and
how the target assignment is computed) and `reconcile` (how a member moves to its target). The module `leaving` removes
members.

A group of the consumer protocol may have members of the classic protocol, whose requests `classic_members` handles.
`upgrade` converts a classic group to the consumer protocol when the first member of the consumer protocol joins.
`downgrade` converts the group to the classic protocol when the last member of the consumer protocol has left.
"""
