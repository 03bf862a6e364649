"""The assignors of groups, which the broker runs (KIP-848, KIP-932): who is to have which partitions. Pure.

`spec` what an assignor is given, `range_assignor` and `uniform` the assignors, `heterogeneous` the uniform one where
members read different topics, `assignors` the list of them by name. `simple` is the one of share groups. Each is a
`Steps`, since a group may have a thousand members and ten thousand partitions. All are total: whatever is asked, they
answer."""
