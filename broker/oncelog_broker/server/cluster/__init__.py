"""What a client asks first: `api_versions` (which APIs there are), `describe_cluster` (which brokers), and
`update_features` (asks for other levels of features)."""
