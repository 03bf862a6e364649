"""State that the broker keeps from one request to later requests: `fetch_sessions` has the sessions of incremental
fetches, `session_partition` has one partition of such a session, `refused_batches` has refused batches that producers
will retry.
"""
