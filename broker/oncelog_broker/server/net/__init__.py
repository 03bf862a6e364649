"""The connections: receive bytes, pass frames to the dispatcher, send responses in order. These modules do not
interpret requests.

- `connection` is one connection: its socket, and the order of its requests. `connection_state` decides when the next
  request is handled: by a lifecycle of five states, and by holds (named reasons to wait). `connections` has all open
  connections, `connection_rates` limits new connections per address. `software` is the client software of a connection.
- Receive side: `frame_reader` cuts frames out of the receive buffer; `header_cache` avoids decoding the same header
  again; a `lane` avoids decoding an entire request that resembles earlier requests.
- Send side: responses wait for earlier responses in the `answer_queue`, and their bytes wait for the socket in a
  `write_buffer`.
- Back-pressure: `limits` has the limits of one client, and the `memory_budget` counts the bytes of requests and
  responses of each connection; a connection is not read while its share is used up.
- `tls_transport` is TLS between socket and connection, `tls_handshakes` schedules the steps of TLS handshakes, and
  `login_gate` decides which requests a client may send before its login.
"""
