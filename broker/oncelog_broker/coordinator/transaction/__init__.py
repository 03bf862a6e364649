"""The transaction coordinator: which transaction of which producer is open, and how it ended.

`config` its settings, `states` the table of legal transitions, `metadata` one transactional id and its transitions,
`records` its bytes in `__transaction_state`, `initialising` what InitProducerId decides, `ending` what EndTxn decides,
`clients` which client works with an id, `machine` all transactional ids of one partition, `marker_queue` which markers
wait for which broker; all pure. `markers` writes an end into a log that is led here, `marker_sender` has all of them
written, here and elsewhere, `coordinator` is the rim, `verification` guards the logs against records of transactions
that nobody knows of, `remote_coordinators` are asked for that on other brokers, and `refused_sequences` are those that
must come first afterwards.
"""
