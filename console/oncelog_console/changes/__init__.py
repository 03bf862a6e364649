"""Changes of a cluster, each with the `oncelog` command that makes the same change. No HTML.

- `change` is the base class of all changes, and reads the fields of a form.
- `commands` (pure) builds commands to copy into a shell.
- `topics` creates, changes and deletes topics.
- `records` produces and deletes records.
- `groups` deletes groups and their offsets.
- `acls` adds and removes ACLs.
- `users` sets and removes SCRAM users.
- `quotas` sets and removes quotas.
- `kinds` lists all kinds of changes, by their names in URLs.
"""
