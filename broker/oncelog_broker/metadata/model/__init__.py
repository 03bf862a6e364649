"""The cluster as values: the contents of the metadata nodes, and the cluster image that is read from them.

`payloads` and `acl_payload` parse and encode the contents of nodes, `quotas` finds the entity of a quota, and
`address_nodes` finds nodes for other spellings of an address. `reader` reads all nodes into the immutable `image`,
which the `cache` keeps current; `faults` logs nodes that cannot be read. `metadata_copy` keeps a copy of the metadata
in the data directory.
"""
