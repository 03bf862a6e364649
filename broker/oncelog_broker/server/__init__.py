"""The server: receives requests from sockets, dispatches them to their handlers, and sends the responses in order.

`net/` has the connections, with all limits on the resources of a client. `dispatch/` reads a request's header, calls
the handler of the request, and encodes the response; `lanes/` has the fast lanes, which serve repeated similar requests
without decoding them and without calling the handler. `request/` has the request context, and other code that handlers
of several subpackages share. `kept/` keeps state that outlives a request: fetch sessions and refused batches.

The handlers are in subpackages by subject, one file for each API: `records/`, `groups/`, `shares/`, `transactions/`,
`topics/`, `replicas/`, `access/` and `cluster/`; only Envelope is in `dispatch/`. In each file `handle(request,
context)` returns the response, a future of the response, or None for no response. In each subpackage, `services`
declares the parts of the broker that the subpackage's handlers may use.

`served` is the list of the APIs with their versions and each handler's subpackage.
"""
