"""The assignors of groups, which the broker runs (KIP-848, KIP-932, KIP-1071): they assign partitions, or tasks, to
members. Pure.

`spec` is the input of an assignor, `range_assignor` and `uniform` are the assignors, `heterogeneous` the uniform one
for members with different subscriptions, `assignors` the list of them by name. `simple` is the one of share groups,
`sticky_tasks` the one of streams groups. Each is a `Steps`, since a group may have a thousand members and ten thousand
partitions. All are total: they return an assignment for every input."""
