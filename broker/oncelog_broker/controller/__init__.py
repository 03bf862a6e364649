"""What only the cluster's controller does: `leadership.py` makes one, `partition_states.py` brings partitions online
by the decisions of `election.py`, `topics.py` changes topics and settings by the rules of `assignment.py`.
"""
