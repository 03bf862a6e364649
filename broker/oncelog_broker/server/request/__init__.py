"""Code that handlers of several subpackages share.

- `context` has the sender, version and rights of a request, and the ways in which a handler responds.
- `duplicate_names` finds names that a request repeats, `topic_ids` resolves topic ids to names, `request_chunks`
  divides requests about very many partitions.
- `wait_for_metadata` waits until a change is in the metadata of this broker.
- `leader_hints` names the leader to clients that sent a request to another broker (KIP-951).
- `transactional_errors` translates error codes for older versions of transactional APIs.
- `forwarding` forwards requests that only the controller serves, for clients of another broker (KIP-590).
"""
