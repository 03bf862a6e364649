"""`oncelog console`: a web page that shows a cluster and changes it. An admin client: it works with Apache Kafka, too.

command.py       the command
application.py   the ASGI application: routes
pages/           requests to pages
rendering.py     templates, and error pages
console.py       state shared by all pages
lookups/         state of a cluster, read with the admin client; no HTML
changes/         changes of a cluster, with the commands that do the same
values/          values of records, searched in worker processes
downloads.py     (pure) records as a file
drawing/         (pure) coordinates of pictures
link.py          the admin client shared by all pages
guard.py         checks hosts, sites, tokens and headers before every page
serving.py       uvicorn with limits
addresses.py     parses the address of a listener
visible_text.py  (pure) text from the cluster, control characters escaped
limits.py        limits of requests and pages
"""
