"""The transaction coordinator: which transaction of which producer is open, and how it ended.

`config` its settings, `states` the table of legal transitions, `metadata` one transactional id and its transitions,
`records` its bytes in `__transaction_state`, `initialising` what InitProducerId decides, `ending` what EndTxn decides,
`clients` which client works with an id, `machine` all transactional ids of one partition; all pure. `markers` writes
the ends into the logs, `coordinator` is the rim, `verification` guards the logs against records of transactions that
nobody knows of.
"""
