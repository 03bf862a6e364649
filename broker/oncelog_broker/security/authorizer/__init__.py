"""Authorization by ACLs, as Kafka's StandardAuthorizer does it (KIP-11, KIP-290, KIP-801).

`rules` is the table of the operations that each API requires. `acl_index` finds the ACLs of a resource and decides,
`authorizer` serves handlers (super users, cached decisions), `configured` gives the authorizer the ACLs of each cluster
image, `audit` logs requests and decisions.
"""
