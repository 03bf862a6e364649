"""What a user sets with `.option(...)`: the names of Spark's own Kafka connector, and few of ours. Pure.

reading.py          one set of options: each name known, each value of its kind, the rest refused with the nearest name
client_settings.py  kafka.*: our client's configuration in Kafka's spelling
source_options.py   of the source
sink_options.py     of the sink
"""
