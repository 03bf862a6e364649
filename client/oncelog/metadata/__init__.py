"""What a client learns of its cluster, and how it asks for it.

metadata.py      the view of the cluster, kept fresh
leaders.py       asking the leaders of many partitions, again where they have moved
list_offsets.py  ListOffsets: the offset of a timestamp, or of one end of the log
coordinators.py  FindCoordinator: who looks after a group or a transactional id
internal_topics.py  which partition of an internal topic that is, by Java's hash
"""
