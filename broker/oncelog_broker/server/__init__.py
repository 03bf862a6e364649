"""The server: sockets in, requests dispatched to their handlers, responses out in order.

`net/` has the connections, with all limits of what a client may take. `dispatch/` goes from the header of a request to
its handler, and from the handler's answer to bytes; `lanes/` serves requests that come again and again without either.
`request/` has what the handlers of several rooms share, first of all the context of a request. `kept/` has what
outlives a request: fetch sessions and refused batches.

The handlers stand in rooms by subject, one file for each API: `records/`, `groups/`, `shares/`, `transactions/`,
`topics/`, `replicas/`, `access/` and `cluster/`; Envelope alone is in `dispatch/`. In each file
`handle(request, context)` returns the response, a future of it, or None for no response. In each room, `services`
declares what its handlers may reach.

`served` is the list of the APIs with their versions and the room of each handler.
"""
