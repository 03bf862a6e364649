"""Code that handlers of several subpackages share.

- `context` has the sender, version and rights of a request, and how a handler answers.
- `duplicate_names` finds things that a request names twice, `topic_ids` turns ids of topics into names,
  `request_chunks` divides requests about very many partitions.
- `wait_for_metadata` waits until a change is in the metadata of this broker, and of others.
- `leader_hints` tells those who should ask another broker which one (KIP-951).
- `transactional_errors` has the error codes that older versions of transactional APIs know.
- `forwarding` forwards requests to the controller that a client sent to another broker (KIP-590).
"""
