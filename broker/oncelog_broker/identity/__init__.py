"""The identity of data directories: each directory has a note (the file `oncelog.identity`) about its last
registration, with which a start compares directories and store.

`note` reads and writes the file in each data directory; `facts` has the facts that a start finds and the verdict on the
start, `comparison` derives the verdict from the facts, and `refusals` has the sentences of refused starts. Only the
module `note` does I/O. docs/design/identity.md explains the design.
"""
