"""The edge: sockets in, requests dispatched, responses out in order.

`connection` frames and ordering, `listener` accepting and idle sweeps, `limits` what one client may take, `dispatch`
header to handler, `served` which APIs and versions we serve, `named` things that a request
names twice, `handlers/` one file per API key.
"""
