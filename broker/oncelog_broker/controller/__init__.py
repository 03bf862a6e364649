"""What only the cluster's controller does, and who that is.

`elector.py` claims the part through `leadership.py`, and hears what the watches say. A term as controller is
`settling.py`: it keeps a `view.py` current (`reading.py`), asks the `machine.py` what is to change, which decides by
`election.py` and `reassignment.py`, and has the `writer.py` write it. What an election must know of logs elsewhere,
`candidate_questions.py` asks their brokers, and `candidates.py` keeps. What others ask of it comes to `partitions.py`:
what leaders propose is judged in `alter_partition.py`, what clients and `balancing.py` want elected in
`elect_leaders.py`; `shutdown.py` knows who is about to stop. `topics.py` creates, grows and deletes topics by the rules
of `assignment.py`, as long as they fit into a write (`topic_room.py`). `configs.py` changes settings and `acls.py`
ACLs, which any broker may, by the rule of `read_nodes.py`. `store_errors.py` says what the store's errors mean to a
client.
"""
