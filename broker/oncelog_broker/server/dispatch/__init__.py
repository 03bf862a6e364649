"""These modules pass each request from its frame to its handler, and encode the handler's response.

- `listener` accepts connections, and closes idle ones.
- `dispatcher` reads the header, finds one of the `routes` (decoder, handler and encoder of an API in one version), and
  sends the response. `envelope` handles requests that another broker forwards: it dispatches the request inside the
  Envelope.
- `throttling` enforces the quotas of clients; the `metered` context of a request counts the resources that the request
  uses.
- `faulty` wraps a handler while a test sets faults for requests, and `refusals` builds the error responses of such
  faults.
"""
