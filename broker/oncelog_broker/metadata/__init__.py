"""The metadata of the cluster: brokers, topics, leaders, settings, producer ids.

`stores/` stores it: a small tree of versioned nodes, in ZooKeeper, in a file of one broker, or in memory; `opening`
chooses. `paths` says at which path a thing lies. `model/` reads the nodes into the immutable cluster image and keeps
that current. `membership/` founds a cluster and keeps a broker in it. `topic_names` has the rules of names.
"""
