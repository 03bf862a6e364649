"""What only the cluster's controller does, and who that is.

`elector.py` claims the part through `leadership.py`, and hears what the watches say. A term as controller is
`partitions.py`: it keeps a `view.py` current (`reading.py`), asks the `machine.py` what is to change, which decides by
`election.py`, and has the `writer.py` write it; what leaders propose is judged in `alter_partition.py`, elections that
somebody asks for in `elect_leaders.py` (`balancing.py` asks now and then), and `shutdown.py` is about brokers that are
about to stop. `topics.py` creates, grows and deletes topics by the rules of `assignment.py`. `configs.py` changes
settings, which any broker may.
`store_errors.py` says what the store's errors mean to a client.
"""
