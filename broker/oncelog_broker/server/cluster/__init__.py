"""The first requests of a client: `api_versions` (the supported APIs), and `describe_cluster` (the brokers)."""
