"""The identity of data directories: each directory has a note (the file `oncelog.identity`) about the broker's last
registration with this directory. At a start the broker compares the notes with the metadata store.

`note` reads and writes the file in each data directory; `facts` has the facts that a start finds and the verdict on the
start, `comparison` derives the verdict from the facts, and `refusals` has the error messages of refused starts. Only
the module `note` does I/O. docs/design/identity.md explains the design.
"""
