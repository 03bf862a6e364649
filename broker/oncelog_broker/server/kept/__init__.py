"""State that outlives a request: `fetch_sessions` are incremental fetches, `refused_batches` are batches that producers
will send again."""
