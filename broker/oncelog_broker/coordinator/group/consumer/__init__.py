"""Groups of the consumer protocol (KIP-848): the broker assigns, members follow one heartbeat at a time. Pure.

`member` and `consumer_group` are the state, which the log alone changes; `step` is the context of one operation. A
heartbeat goes through `heartbeat` (what is asked, what is answered), `epochs` (which epochs may be named), `change`
(what the step changes, in order), `regexes` (topics by regular expression), `target` (when and how the group is
assigned) and `reconcile` (how a member gets to its target). `leaving` is how members go.

Members of the classic protocol may be in such a group: `classic_members` serves them. `upgrade` makes a classic group
one of the consumer protocol when the first such member joins, `downgrade` makes it classic when the last one is gone.
"""
