"""`oncelog console`: a web page that shows a cluster and changes it. The console is an admin client, so it also works
with Apache Kafka.

command.py       the command
configuration.py the file of several clusters
application.py   the ASGI application: routes
entrance.py      finds the console of a visitor before each page, or leads to the login
pages/           requests to pages
rendering.py     templates, and error pages
site.py          all clusters and sessions
clusters.py      a cluster as it is configured
console.py       state shared by the pages of one cluster for one user
login/           sessions, and the login at an identity provider
lookups/         state of a cluster, read with the admin client; no HTML
changes/         changes of a cluster, with the commands that do the same
values/          values of records, read and searched in worker processes
downloads.py     (pure) records as a file
drawing/         (pure) coordinates of pictures
link.py          the admin client shared by all pages
guard.py         checks hosts, sites, tokens and headers before every page
serving.py       uvicorn with limits
addresses.py     parses the address of a listener
urls.py          (pure) addresses of our pages
visible_text.py  (pure) text from the cluster, control characters escaped
limits.py        limits of requests and pages
"""
