"""The clients of a simulated cluster, and what they note.

`notes`           what all of them write down: the history, the judged topics, their steps, their complaints
`workload`        what they have in common: they are started again when they are killed, and end in the calm
`writers`         idempotent producers
`transactions`    transactional producers: several partitions, offsets, aborts, deserted transactions
`pipelines`       consume-process-produce, killed and taken over
`groups`          members of a consumer group; who asks for committed offsets
`ghosts`          members that have lost their place in the group, and go on
`group_wire`      requests of members as no library sends them
`prepared`        two-phase commit, whose end a ledger decides
`retention`       a writer to a topic whose oldest segments are deleted
`readers`         readers of whole topics; who asks for the ends of partitions
`tables`          a writer of keys to a compacted topic
`wire`            requests as no library sends them
`zombies`         taken-over producers, requests that come twice, too late or out of order
`administrators`  partitions that move, settings that change, topics that are made again, records that are deleted
`catalogue`       all of these by name
"""
