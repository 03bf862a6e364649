"""Cluster metadata, and requests to leaders and coordinators.

metadata.py        the view of the cluster, kept fresh
leaders.py         requests to the leaders of many partitions, repeated if they have moved
list_offsets.py    ListOffsets: the offset of a timestamp, or of one end of the log
coordinators.py    FindCoordinator: the coordinator of a group or transactional id
internal_topics.py the partition of an internal topic for a key, by Java's hash
"""
