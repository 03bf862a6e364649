"""The assignors of groups, which the broker runs (KIP-848, KIP-932, KIP-1071): they assign partitions, or tasks, to
members. Pure.

`spec` is the input of an assignor. `range_assignor` and `uniform` are the assignors of consumer groups, `heterogeneous`
is the variant of `uniform` for members with different subscriptions, and `assignors` has these assignors by name.
`simple` is the assignor of share groups, `sticky_tasks` the assignor of streams groups. Each assignor is a generator
that pauses between slices of its work (`Steps`), since a group may have a thousand members and ten thousand partitions.
Each assignor returns an assignment for every input.
"""
