"""`oncelog console`: a web page that shows a cluster, and ends what hangs. An admin client, so for Apache Kafka too.

command.py      the command
application.py  the ASGI application: which page is where
pages/          from a request to a page
rendering.py    templates, and the pages for what went wrong
console.py      what all pages share
lookups/        state of a cluster, read with the admin client; no HTML
drawing/        (pure) where the lines of pictures go
link.py         the admin client that all pages share
guard.py        hosts, sites, tokens, headers: before every page
serving.py      uvicorn, bounded
addresses.py    the address that a listener is given
visible_text.py  (pure) text from the cluster, control characters escaped
limits.py       what is taken and shown at most
"""
