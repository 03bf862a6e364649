"""Values of records, decoded and searched in separate processes, so that no record and no expression can block the
event loop or the console.

expression.py    (pure) a search by JSONPath
tasks.py         (pure) what a worker is asked, and what it answers
reader.py        how values were written, and their schemas; asks workers
reading.py       reads values in a worker process, by the codecs of the client
worker.py        the program of a worker process, with limits on time and memory
workers.py       starts, asks and ends worker processes
"""
