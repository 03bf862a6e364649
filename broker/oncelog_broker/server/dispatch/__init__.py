"""From the frame of a request to its handler, and from the handler's answer to bytes.

- `listener` accepts connections, and closes idle ones.
- `dispatcher` reads the header, finds one of the `routes` (decoder, handler and encoder of an API in one version), and
  sends the answer. `envelope` is the handler of requests that another broker forwards: it dispatches the one inside.
- `throttling` enforces the quotas of clients; the `metered` context of a request counts the resources that the request
  uses.
- `faulty` is around a handler where a test sets faults for requests, and `refusals` makes the answers that refuse them.
"""
