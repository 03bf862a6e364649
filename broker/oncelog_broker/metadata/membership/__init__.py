"""A broker in its cluster: founding the cluster, joining it, and knowing whether this broker is still in it.

- `membership` keeps the broker registered, and says whether it may lead. `registration` registers it: `endpoints` keeps
  out a broker with the address of another one, `feature_levels` one whose release does not fit. `incarnation` is what
  the process before this one left behind.
- `founding` makes the first nodes of a cluster, `restoring` those of one whose metadata store was lost, from a copy.
  `cluster_id` chooses the id of a cluster, `store_identity` reads what a store says of itself to a broker that starts.
- What the members of a cluster share: `producer_ids`, of which each broker takes blocks, and the secret `login_key`.
"""
