"""A broker in its cluster: founding the cluster, joining it, and knowing whether this broker is still in it.

- `membership` keeps the broker registered, and says whether it may lead. `registration` registers it: `endpoints`
  refuses a broker with the address of another one, `feature_levels` one whose release is incompatible. `incarnation` is
  the trace of the previous process.
- `founding` creates the first nodes of a cluster, `restoring` the nodes of a cluster whose metadata store was lost,
  from a copy. `cluster_id` chooses the id of a cluster, `store_identity` reads the identity of a store at a start.
- Members of a cluster share `producer_ids`, of which each broker takes blocks, and the secret `login_key`.
"""
