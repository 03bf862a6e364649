"""The options that a user sets with `.option(...)`: those of Spark's own Kafka connector, and a few that only oncelog
has.

The modules do no I/O, except that they read certificate stores.

reading.py          checks names and values; an unknown name is refused with the nearest known one
connector.py        every option of Spark's connector, and how it is handled here
client_settings.py  kafka.*: our client's configuration in Kafka's spelling
security_settings.py  kafka.ssl.* and kafka.sasl.*: certificate stores, the JAAS configuration
source_options.py   options of the source
sink_options.py     options of the sink
"""
