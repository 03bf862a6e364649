"""The server: sockets in, requests dispatched to their handlers, responses out in order.

`net/` has the connections, with all limits on the resources of a client. `dispatch/` goes from the header of a request
to its handler, and from the handler's answer to bytes; `lanes/` serves repeated similar requests without either.
`request/` has code that handlers of several subpackages share, first of all the context of a request. `kept/` has state
that outlives a request: fetch sessions and refused batches.

The handlers are in subpackages by subject, one file for each API: `records/`, `groups/`, `shares/`, `transactions/`,
`topics/`, `replicas/`, `access/` and `cluster/`; only Envelope is in `dispatch/`. In each file
`handle(request, context)` returns the response, a future of it, or None for no response. In each subpackage, `services`
declares the parts of the broker that its handlers may use.

`served` is the list of the APIs with their versions and the room of each handler.
"""
