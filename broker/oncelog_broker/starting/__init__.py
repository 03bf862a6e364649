"""The first part of a start: checks whether data directories and metadata store are the ones that this broker had
before.

`data_start` locks the directories, opens the store, has the package `identity` compare the two, and writes each
registration into the notes of the directories.
"""
