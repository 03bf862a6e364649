"""The rules that a simulated cluster must obey, at each step and at the end.

`running`    the running brokers, as judges see them
`truth`      replicas in sync and registered brokers, according to the metadata store
`leaders`    one leader per epoch, whose high watermark never goes back
`committed`  every in-sync replica has all records shown below a high watermark
`content`    the records that readers find at the end
`histories`  the answers that clients got, against the content at the end
`resources`  nothing is kept for clients that have ended
"""
