"""Partitions as replicas: who leads, who follows, what is replicated, and who waits for it.

Pure: `roles` what this broker is to a partition, `high_watermark` where that may stand, `isr` who is in sync, and who
is to be, `follower_progress` how far a follower has come, `truncation` where one cuts its log, `fetch_plan` what it
asks for next, `throttle` how fast those catch up that need not hurry.

One partition: `replica` in either role, `partition` as its leader sees it, `following` what a follower does with an
answer, `waiting` the appends and fetches that wait there, `verification_guards` what holds between a question about a
transaction and its append.

All of them: `replicas` those of this broker, kept in step with the cluster image, `image_changes` what that has changed
for many of them, a few at a time, `hosted_logs` their logs as they come and go, `returning_logs` those whose disk
failed and is well again, `lost_epochs` what is not led or fetched because its log knows a newer leader epoch,
`epoch_raiser` who asks the controller for a higher one, `fetcher` the loops that fetch what is followed, `isr_keeper`
who asks the controller for another ISR, `peers` requests to other brokers. Before they begin, `found_logs` says what a
new cluster finds in its data directories, `older_store` has an older metadata store know it, and `strays` sets aside
what belongs to nothing.
"""
