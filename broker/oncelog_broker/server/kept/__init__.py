"""State that outlives a request: `fetch_sessions` has the sessions of incremental fetches, `refused_batches` has
refused batches that producers will retry.
"""
