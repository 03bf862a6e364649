"""The transaction coordinator: stores which transactions of which producers are open, and how they ended.

These modules have no I/O: `config` has the settings, `states` the table of legal transitions, `metadata` the state of
one transactional id and its transitions, `records` the records in `__transaction_state`, which `state_batch` encodes
from cached parts. `usual_steps` has the transitions of a usual transaction. `initialising` decides about
InitProducerId, `ending` about EndTxn. `machine` is the state machine of one partition of `__transaction_state`,
`marker_queue` queues the markers for each broker, `clients` stores which client uses a transactional id, and
`refused_sequences` stores which refused batch a producer must send again before later batches.

These modules have I/O: `coordinator` runs the state machines, `markers` appends a marker to a log that this broker
leads, and `marker_sender` has all markers of a transaction written, on this broker and on other brokers. `verification`
asks the coordinator whether a partition is in an open transaction, and refuses the transaction's records if it is not.
`usual_transactions` serves the fast lanes: it checks the state of a transactional id and has the next state logged.
`remote_coordinators` sends these requests to coordinators on other brokers.
"""
