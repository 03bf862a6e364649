"""The edge: sockets in, requests dispatched, responses out in order.

`connection` the requests of one connection in order, between its `receiving` side (frames) and its `answer_queue`;
`listener` accepting and idle sweeps, `limits` what one client may take, `dispatch`
header to handler, `served` which APIs and versions we serve, `handlers/` one file per API key.
"""
