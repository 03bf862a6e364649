"""The connections: bytes in, frames to the dispatcher, answers out in order. These modules do not interpret requests.

- `connection` is one connection: its socket, and its requests in order. `connection_state` decides when the next one is
  handled: a lifecycle of five states, and named holds. `connections` has all open connections, `connection_rates`
  limits new ones per address.
- In: `frame_reader` cuts frames out of the receive buffer; `header_cache` saves decoding the same header again, and a
  `lane` the whole request, if it is like the previous ones.
- Out: answers wait for their turn in the `answer_queue`, and their bytes for the socket in a `write_buffer`.
- Back-pressure: `limits` has the limits of one client, and the `memory_budget` counts the bytes of requests and answers
  of each connection, so that a connection is not read while its share is used up.
- `tls_transport` is TLS between socket and connection, `tls_handshakes` lets its handshakes take turns, and
  `login_gate` decides what may be sent before a login.
"""
