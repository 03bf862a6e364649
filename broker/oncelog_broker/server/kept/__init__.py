"""What outlives a request: `fetch_sessions` are incremental fetches, `refused_batches` what producers send again."""
