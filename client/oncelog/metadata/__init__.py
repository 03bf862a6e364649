"""Cluster metadata, and requests to leaders and coordinators.

metadata.py        keeps the client's view of the cluster fresh
leaders.py         requests to the leaders of many partitions, repeated if a leader has moved
list_offsets.py    ListOffsets: the offset of a timestamp, or of one end of the log
coordinators.py    FindCoordinator: the coordinator of a group or transactional id
internal_topics.py the partition of an internal topic for a key, by Java's hash
"""
