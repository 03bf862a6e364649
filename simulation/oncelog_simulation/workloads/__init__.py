"""The clients of a simulated cluster, and their notes.

`notes`           the notes of all clients: the history, the judged topics, their steps, their complaints
`workload`        the common part: workloads are started again when they are killed, and end when faults are over
`writers`         idempotent producers
`transactions`    transactional producers: several partitions, offsets, aborts, deserted transactions
`pipelines`       consume-process-produce, killed and taken over
`groups`          members of a consumer group; who asks for committed offsets
`sharers`         members of a share group
`ghosts`          members that have lost their place in the group, and go on
`group_wire`      requests of members as no library sends them
`prepared`        two-phase commit, whose end a ledger decides
`retention`       a writer to a topic whose oldest segments are deleted
`readers`         readers of whole topics; who asks for the ends of partitions
`tables`          a writer of keys to a compacted topic
`wire`            requests that no library sends
`zombies`         taken-over producers, requests that are repeated, late or out of order
`administrators`  reassignments, changed settings, re-created topics, deleted records
`catalogue`       all workloads by name
"""
