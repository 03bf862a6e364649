"""What a data directory remembers of its own past, and what a start makes of it.

`note` is the file in each data directory; `comparison` compares the notes with what a start finds, and `refusals` has
the sentences of starts that are refused. Only `note` does I/O.
"""
