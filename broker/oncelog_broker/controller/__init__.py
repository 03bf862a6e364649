"""The controller of the cluster: its own election, and its work on partitions and topics.

`elector.py` claims the controller role through `leadership.py`, and turns the store's watches into events. One term as
controller is a `reconciler.py`: it keeps a `view.py` of the cluster current (`reading.py`; `known_broker.py` is one
broker in the view), asks `partition_decisions.py` which partition states must change, and has `writer.py` write them.
`partition_decisions.py` decides by `election.py` and `reassignment.py`. An election may need the log ends of other
brokers: `candidate_questions.py` requests these log ends, `candidates.py` keeps the answers.

Requests to the controller go to `partitions.py`: `alter_partition.py` judges the ISRs that leaders propose,
`elect_leaders.py` the elections that clients and `balancing.py` ask for, `shutdown.py` controlled shutdowns.
`topics.py` creates, grows and deletes topics by the rules of `assignment.py`; `topic_room.py` checks that a topic's
node fits into one write. `configs.py` changes settings and `acls.py` changes ACLs; any broker may do both, by the rule
of `read_nodes.py`. `store_errors.py` translates errors of the store into errors for clients.
"""
