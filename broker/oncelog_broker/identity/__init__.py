"""The identity of data directories: the note that each one has of its past, and the comparison with it at a start.

`note` reads and writes the file in each data directory; `facts` has the values that a start finds and its verdict,
`comparison` makes the verdict of them, and `refusals` has the sentences of refused starts. Only `note` does I/O.
docs/design/identity.md explains it.
"""
