"""One file per API key: `handle(request, context)` gives the response, or something to await, or None for none."""
