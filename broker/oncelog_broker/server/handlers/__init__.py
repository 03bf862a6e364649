"""One file per API key: `handle(request, context)` returns the response, a future of it, or None for no response."""
