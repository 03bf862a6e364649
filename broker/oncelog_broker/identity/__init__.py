"""What a data directory remembers of its own past, and what a start makes of it.

`note` is the file in each data directory; `facts` is what a start finds, `comparison` compares the two, and `refusals`
has the sentences of starts that are refused. Only `note` does I/O.
"""
