"""A schema registry beside a Kafka cluster, with the REST interface that clients of the Confluent registry use.

command.py        `oncelog registry`
application.py    the routes: paths, parameters and the JSON of the answers
guard.py          refuses pages of browsers before every call
registry.py       answers one call: reads the state, or decides and writes
journal.py        the topic `_schemas`: read to its end, written by transactions
decisions.py      what a change writes to the topic, or the error that refuses it
state.py          the subjects, versions, levels and modes that the records of the topic tell of
records.py        the keys and values of the topic, as the Confluent registry writes them
schemas.py        a schema, a reference, a version of a subject
compatibility.py  the levels: which versions a new one is checked against, and in which direction
formats/          Avro, JSON Schema and Protobuf: parsing, and whether one schema reads what another wrote
errors.py         the errors of the interface, with their codes
limits.py         the limits, by name
"""
