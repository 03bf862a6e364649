"""The options that a user sets with `.option(...)`: those of Spark's own Kafka connector, and a few that only oncelog
has.

The modules do no I/O, except that they read certificate stores.

- `reading.py` checks names and values; an unknown name is refused with the nearest known one.
- `connector.py` lists every option of Spark's own connector, and how oncelog handles it.
- `client_settings.py` converts kafka.* to the configuration of oncelog's client.
- `security_settings.py` converts kafka.ssl.* and kafka.sasl.*: certificate stores, the JAAS configuration.
- `source_options.py` has the options of the source.
- `sink_options.py` has the options of the sink.
"""
