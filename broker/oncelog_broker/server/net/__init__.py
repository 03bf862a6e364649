"""The connections: bytes in, frames to the dispatcher, answers out in order. Nothing here knows what a request says.

- `connection` is one connection: its socket, and its requests in order. `connection_state` decides when the next one is
  handled: a lifecycle of five states, and named holds. `connections` are all that are open, `connection_rates` how fast
  an address may make new ones.
- In: `frame_reader` cuts frames out of the receive buffer; `header_cache` saves decoding the same header again, and a
  `lane` the whole request, where it is like those before.
- Out: answers wait for their turn in the `answer_queue`, and their bytes for the socket in a `write_buffer`.
- Back-pressure: `limits` is what one client may take, and the `memory_budget` says which connection holds how many
  bytes of requests and answers, so that a connection is not read while its share is used up.
- `tls_transport` is TLS between socket and connection, `tls_handshakes` lets its handshakes take turns, and
  `login_gate` decides what may be sent before a login.
"""
