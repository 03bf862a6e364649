"""The metadata store of several workers on one machine: their supervisor has the embedded store and serves this store
to the workers.

`store_server` is the supervisor's side of the connection, `supervised_store` the side of a worker: a `MetadataStore`
over the socket that connects the two processes. `messages` has the messages between the two processes.
"""
