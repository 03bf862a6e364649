"""What the cluster is: brokers, topics, leaders, settings, producer ids.

`store.py` says what a metadata store does. `embedded.py` is one for a broker alone, and `write_ahead_log.py` tells
whether what lies beside its file belongs to it; `in_memory.py` is one for several brokers in one process. Both are a
`tree_store.py`, which holds a `tree.py`. `zookeeper.py` is the one for a cluster:
`zk_client.py` is one session of it, `zk_sockets.py` how its connection is read and waited for, `zk_tls.py` what TLS
takes there, `zk_wake_ups.py` how its thread is woken, `zk_requests.py` what it sends, `zk_access.py` who we are to it,
`zk_acls.py` what others may do with our nodes, `lease.py` says how long it is proof of our place, and `watches.py` is
what all stores share; `opening.py` chooses.
`paths.py`, `payloads.py` and `acl_payload.py` say what lies where, `quotas.py` whom quotas are for, and
`address_nodes.py` which addresses are spelled otherwise; `reader.py` reads that into the immutable `image.py`, which
`cache.py` keeps current; `faults.py` tells of what cannot be read. `membership.py` keeps a broker in the cluster, which
`cluster_id.py` names, by `registration.py`, where `feature_levels.py` lets it in, `endpoints.py` keeps out who has
another's address, and with what `incarnation.py` knows of the process before it; `founding.py` is what a new cluster
begins with, `store_identity.py` what a store says of itself to a broker that starts; `producer_ids.py` gives it
producer ids, `login_key.py` a secret. `metadata_copy.py` keeps a copy of the metadata in its data directory, with which
`restoring.py` founds the cluster again when the store was lost. `topic_names.py` has the rules of names.
"""
