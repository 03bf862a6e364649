"""What the handlers of each room may reach beside what all may: a small declaration for each, and the context with it.

`records` is for Produce, Fetch and what else reads and writes records, `groups` for consumer groups and their offsets,
`transactions` for producer ids and transactions, `topics` for topics and settings, `replicas` for who holds and leads
what, `access` for users, rights and quotas; `forwarding` is what it takes to pass a request on to the controller.
"""
