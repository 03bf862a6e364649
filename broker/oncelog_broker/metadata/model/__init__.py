"""The cluster as values: the contents of the nodes, and the image that is read from them.

`payloads` and `acl_payload` are the contents of nodes, `quotas` finds the entity of a quota, `address_nodes` finds
nodes for other spellings of an address. `reader` reads them all into the immutable `image`, which the `cache` keeps
current; `faults` logs nodes that cannot be read. `metadata_copy` keeps a copy of the metadata in the data directory.
"""
