"""Share groups (KIP-932): members share the records of a partition, and acknowledge each one.

`share_consumer` is the public ShareConsumer. `share_membership` joins the group and learns the assignment,
`share_node` has the session with one broker, `share_request` makes its requests, `acknowledgements` collects what the
application says of records, `share_records` is what it gets, `share_decoding` reads it from responses.
"""
