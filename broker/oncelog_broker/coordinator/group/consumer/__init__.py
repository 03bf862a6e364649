"""Groups of the consumer protocol (KIP-848): the broker assigns partitions, members move to their targets one heartbeat
at a time. Pure.

`member` and `consumer_group` are the state, which only replayed records change; `step` is the context of one operation.
A heartbeat goes through `heartbeat` (request and response), `epochs` (which epochs are valid), `change` (the changes of
a step, in order), `regexes` (topics by regular expression), `target` (when and how the group is assigned) and
`reconcile` (how a member gets to its target). `leaving` is how members go.

Members of the classic protocol may be in such a group: `classic_members` serves them. `upgrade` converts a classic
group to the consumer protocol when the first such member joins, `downgrade` converts it back when the last one has
left.
"""
