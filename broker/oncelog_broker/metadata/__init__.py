"""The metadata of the cluster: brokers, topics, leaders, settings, producer ids.

`stores/` keeps the metadata in a small tree of versioned nodes: in ZooKeeper, in a file of one broker, or in memory;
`opening` chooses between these stores. `paths` has the path of each node. `model/` reads the nodes into the immutable
cluster image and keeps that image current. `membership/` founds a cluster and keeps a broker in it. `topic_names` has
the rules for topic names.
"""
