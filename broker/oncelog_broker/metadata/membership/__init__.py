"""A broker's membership in its cluster: founding or joining the cluster, and checking whether the broker is still a
member.

- `membership` keeps the broker registered, and says whether it may lead. `registration` registers the broker:
  `endpoints` refuses a broker that has the address of another broker, `feature_levels` refuses a broker whose release
  is incompatible. `incarnation` reads the file that the previous process left in the data directory.
- `founding` creates the first nodes of a cluster; if the metadata store was lost, `restoring` creates the nodes from a
  copy of the metadata. `cluster_id` chooses the id of a cluster; `store_identity` reads the identity of a store at
  startup.
- `login_key` reads the secret that all members share. `producer_ids` allocates blocks of producer ids, from a range
  that all members share.
"""
