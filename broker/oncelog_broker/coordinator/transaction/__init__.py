"""The transaction coordinator: stores which transactions of which producers are open, and how they ended.

These modules have no I/O: `config` has the settings, `states` the table of legal transitions, `metadata` the state of
one transactional id and its transitions, `records` the records in `__transaction_state`. `initialising` decides about
InitProducerId, `ending` about EndTxn. `machine` is the state machine of one partition of `__transaction_state`,
`marker_queue` queues the markers for each broker, `clients` remembers which client uses a transactional id, and
`refused_sequences` remembers which batches must be sent again first.

These modules have I/O: `coordinator` runs the state machines, `markers` appends a marker to a log that this broker
leads, `marker_sender` gets all markers written, on this broker and on other brokers. `verification` refuses records of
transactions that no coordinator knows, and `remote_coordinators` sends these verification requests to the coordinators
on other brokers.
"""
