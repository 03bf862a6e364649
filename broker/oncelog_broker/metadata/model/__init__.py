"""The cluster as values: what lies in the nodes, and the image that is read from them.

`payloads` and `acl_payload` are the contents of nodes, `quotas` says for whom a quota is, `address_nodes` which names
are another spelling of an address. `reader` reads all that into the immutable `image`, which the `cache` keeps current;
`faults` logs what cannot be read. `metadata_copy` keeps a copy of the metadata in the data directory.
"""
