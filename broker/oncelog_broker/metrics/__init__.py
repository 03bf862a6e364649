"""Prometheus metrics of a broker, computed when Prometheus scrapes them; the hot path only counts.

A metric is a function in one of the `*_families` modules, declared with name, help text and labels (`family`); the
function reads a `source`, whose values are collected once for each scrape. `topic_families`, `partition_families`,
`request_families`, `cluster_families`, `coordinator_families`, `share_families`, `quota_families` and
`process_families` use the names that Kafka's metrics usually have in Prometheus (by the usual rules of jmx_exporter);
`own_families` has metrics that Kafka does not have, and `client_families` the metrics that clients push. `families`
lists all metrics; `scraping` formats them in slices.
"""
