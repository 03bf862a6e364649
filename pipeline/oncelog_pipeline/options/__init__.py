"""What a user sets with `.option(...)`: the names of Spark's own Kafka connector, and few of ours.

Pure, but that stores of certificates are read.

reading.py          one set of options: each name known, each value of its kind, the rest refused with the nearest name
connector.py        every option of Spark's connector, and the answer here
client_settings.py  kafka.*: our client's configuration in Kafka's spelling
security_settings.py  kafka.ssl.* and kafka.sasl.*: stores of certificates, the JAAS configuration
source_options.py   of the source
sink_options.py     of the sink
"""
