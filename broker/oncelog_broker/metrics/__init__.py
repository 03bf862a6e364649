"""Prometheus metrics of a broker, computed when scraped: the hot path only counts.

A metric is a function in one of the `*_families` modules, declared with name, help and labels (`family`); it reads a
`source`, which is collected once per scrape. `topic_families`, `partition_families`, `request_families`,
`cluster_families`, `coordinator_families`, `quota_families` and `process_families` use the names that Kafka's metrics
usually have in Prometheus (jmx_exporter's usual rules); `own_families` has metrics that Kafka does not have. `families`
lists all, `scraping` formats them, a slice at a time.
"""
