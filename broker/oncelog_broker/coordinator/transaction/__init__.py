"""The transaction coordinator: which transaction of which producer is open, and how it ended.

Pure: `config` has the settings, `states` the table of legal transitions, `metadata` one transactional id and its
transitions, `records` its bytes in `__transaction_state`, `initialising` decides about InitProducerId and `ending`
about EndTxn, `machine` is the state machine of one partition of `__transaction_state`, `marker_queue` knows which
markers wait for which broker, `clients` remembers which client uses an id, `refused_sequences` which batches must be
sent again first.

With I/O: `coordinator` runs the machines, `markers` appends a marker to a log that this broker leads, `marker_sender`
has all markers written, here and on other brokers, `verification` refuses records of transactions that no coordinator
knows, and `remote_coordinators` asks the coordinators of other brokers about that.
"""
