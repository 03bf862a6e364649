"""Share groups (KIP-932): members share the records of a partition, and acknowledge each record.

`share_consumer` is the public ShareConsumer. `share_membership` joins the group and receives the assignment.
`share_node` has the session with one broker, and `share_request` builds the requests of the session. `acknowledgements`
collects the acknowledgements of the application. `share_records` has the records that the application gets, and
`share_decoding` decodes them from responses. `share_deserializing` deserializes their keys and values.
"""
