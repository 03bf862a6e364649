"""Changes of a cluster, each with the `oncelog` command that does the same. No HTML.

change.py      what all changes have in common; the fields of a form
commands.py    (pure) commands to copy into a shell
topics.py      topics created, changed and deleted
records.py     records produced and deleted
groups.py      groups and their offsets deleted
acls.py        ACLs added and removed
users.py       SCRAM users set and removed
quotas.py      quotas set and removed
kinds.py       all kinds of changes, by the name in their address
"""
