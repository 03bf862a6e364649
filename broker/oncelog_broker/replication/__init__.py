"""Partitions as replicas: leader state, high watermark, and who waits for it.

`partition` one partition that this broker leads, `isr` the rules of the replicas in sync, `waiting` the appends and
fetches that wait there, `verification_guards` what holds between a question about a transaction and its append,
`replicas` all partitions of this broker, kept in step with the cluster image, `hosted_logs` their logs as they come and
go, `peers` requests to other brokers.
"""
