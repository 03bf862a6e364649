"""A schema registry beside a Kafka cluster, with the REST interface that clients of the Confluent registry use.

- `command` is `oncelog registry`.
- `application` has the routes: it parses paths and parameters, and builds the JSON of the responses.
- `guard` checks each request first, and refuses requests that come from web pages.
- `registry` handles one call: a read responds from the state; a change decides which records are needed, and writes
them.
- `journal` reads the topic `_schemas` to its end, and writes to the topic in transactions.
- `decisions` decides which records a change writes to the topic, or which error refuses the change.
- `state` has the subjects, versions, compatibility levels and modes that result from the topic's records.
- `records` has the keys and values of the topic, as the Confluent registry writes them.
- `schemas` has a schema, a reference, and a version of a subject.
- `compatibility` has the levels: which versions a new schema is compared with, and in which direction.
- `formats/` parses Avro, JSON Schema and Protobuf, and checks whether one schema can read data of another.
- `errors` has the errors of the interface, with their codes.
- `limits` has the limits, by name.
"""
