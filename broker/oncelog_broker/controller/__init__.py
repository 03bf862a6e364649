"""The controller of the cluster: its own election, and its work on partitions and topics.

`elector.py` claims the controller role through `leadership.py`, and turns the store's watches into events. During a
term as controller, `reconciler.py` keeps the view of the cluster current (`view.py`, `reading.py`; `known_broker.py` is
one broker in the view). For each event, `partition_decisions.py` decides which partition states must change, and
`writer.py` writes the changes. `partition_decisions.py` uses the rules of `election.py` and `reassignment.py`. An
election may need the log ends of other brokers: `candidate_questions.py` requests these log ends, and `candidates.py`
stores the log ends that brokers have reported.

`partitions.py` handles requests to the controller about partitions: `alter_partition.py` decides about ISRs that
leaders propose, `elect_leaders.py` about elections that clients and `balancing.py` request, and `shutdown.py` about
controlled shutdowns. `topics.py` creates and deletes topics and adds partitions. `assignment.py` assigns replicas to
brokers. `topic_room.py` checks that a topic's node in the store fits into one write. `configs.py` changes settings and
`acls.py` changes ACLs. Any broker may make these changes, because `read_nodes.py` detects concurrent changes.
`store_errors.py` translates errors of the store into errors for clients.
"""
