"""The first part of a start: are the data directories and the metadata store the ones that this broker had before?

`data_start` locks the directories, opens the store, has the package `identity` compare the two, and writes each
registration into the notes of the directories.
"""
