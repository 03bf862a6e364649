"""Who may do what, as Kafka's StandardAuthorizer sees it (KIP-11, KIP-290, KIP-801).

`rules` is the table of what each API asks for. `acl_index` finds the ACLs that hold for a resource and decides by them,
`authorizer` is what handlers ask (super users, remembered decisions), `configured` has it follow the cluster, `audit`
writes down who asked for what.
"""
