"""The transaction coordinator: which transaction of which producer is open, and how it ended.

`states` the table of legal transitions, `metadata` one transactional id and its transitions, `records` its bytes in
`__transaction_state`, `initialising` what InitProducerId and `ending` what EndTxn decides, `machine` all transactional
ids of one partition, `config` the settings; all pure. `markers` writes the ends into the logs, `coordinator` is the
rim, `verification` guards the logs against records of transactions that nobody knows of. `refused_sequences` are
those that it asks for again. For people who look: `patterns` of transactional ids, `clients` who works with them.
"""
