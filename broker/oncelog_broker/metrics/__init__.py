"""What a broker tells Prometheus of itself, read from its state when it is asked for: the hot path only counts.

A metric is a function in one of the `*_families` modules, declared with its name, help and labels (`family`); what it
reads is a `source`, looked at once for a whole scrape. `topic_families`, `partition_families`, `request_families`,
`cluster_families`, `coordinator_families`, `quota_families` and `process_families` carry the names that Kafka's metrics
usually have in Prometheus (jmx_exporter's usual rules); `own_families` is what only this broker knows. `families` is
all of them, `scraping` makes the text, a slice at a time.
"""
