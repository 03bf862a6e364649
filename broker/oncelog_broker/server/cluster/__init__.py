"""What a client asks first: `api_versions` (which APIs there are), and `describe_cluster` (which brokers)."""
