"""Values of records, decoded and searched in separate processes, so that no record and no expression can block the
event loop or the console.

- `expression` (pure) searches a value with a JSONPath expression.
- `tasks` (pure) has the messages to a worker process, and its results.
- `reader` determines how values were encoded, gets their schemas, and sends tasks to workers.
- `reading` decodes values in a worker process, with the client's codecs.
- `worker` is the program of a worker process, with limits on time and memory.
- `workers` starts and ends worker processes, and gives them tasks.
"""
