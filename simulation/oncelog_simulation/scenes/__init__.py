"""Scenes: scripts that bring about rare situations, for directed plans.

- `scene` defines a scene, and `stage` has the steps that several scenes use.
- `actors` has the clients that write to the topic of a scene, and `stable_watcher` checks last stable offsets.
- `directing` plays the scene of a plan.
- `cut_off_leaders` has leaders with records that nobody replicates.
- `grown_logs` has logs that are opened as they were closed, and logs that have only grown since.
- `left_behind` has replicas that are away while the oldest records are deleted.
- `writes` has brokers that die in the middle of a chosen step on the disk.
- `directories` has logs that are moved to another data directory.
- `failing_disks` has disks that fail in turn around elections.
- `returning_brokers` has brokers that return one after the other when all machines have lost their power.
- `moves` has partitions that are moved to dead or slow replicas.
- `late_messages` has messages that arrive when the state that they were sent for is over.
- `compactions` has compactions that are interrupted, or meet open transactions.
- `startup_files` has brokers that are killed just after they write a checkpoint or a producer snapshot.
- `restored_stores` has a metadata store that is restored from a backup that is several elections old.
- `failed_starts` has first starts that fail before they register.
- `controllers` has controllers that are deposed while they decide.
- `coordinators` has coordinators that are replaced while they still answer, or whose logs are compacted.
- `catalogue` lists all scenes by name, and `drawing` draws the plan of a seed.
"""
