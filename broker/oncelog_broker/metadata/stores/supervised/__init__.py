"""The metadata store of several workers on one machine: their supervisor has the embedded store and serves it to them.

`store_server` is the supervisor's side, `supervised_store` a worker's: a `MetadataStore` over the socket that connects
the two processes. `messages` is what they say to each other.
"""
