"""Partitions as replicas: leader state, high watermark, and who waits for it.

`partition` one partition that this broker leads, `delayed` the fetches that wait for data, `replicas` all partitions of
this broker, kept in step with the cluster image, `hosted_logs` their logs as they come and go.
"""
