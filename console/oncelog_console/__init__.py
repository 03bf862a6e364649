"""`oncelog console`: a web page that shows a cluster and changes it. The console is an admin client, so it also works
with Apache Kafka.

- `command` is the command line, and `configuration` reads the file of several clusters.
- `application` is the ASGI application with its routes; `serving` runs it in uvicorn, with limits.
- `guard` checks hosts, origins, tokens and headers before every page.
- `entrance` finds the console of a visitor before each page, or redirects to the login.
- `pages/` handles requests for pages; `rendering` has the templates' environment, and the error pages.
- `site` has all clusters and sessions, `clusters` the configuration of a cluster, and `console` the state of one
  cluster that all pages of one user share.
- `login/` has the sessions, and the login at an identity provider.
- `lookups/` reads the state of a cluster with the admin client; it contains no HTML.
- `changes/` changes a cluster, and shows the equivalent commands.
- `values/` decodes and searches values of records in worker processes.
- `downloads` (pure) writes records as a file, and `drawing/` (pure) computes the coordinates of pictures.
- `link` is the admin client that all pages share.
- `addresses` parses the address of a listener, and `urls` (pure) builds the URLs of pages.
- `visible_text` (pure) escapes control characters in text from the cluster.
- `limits` has the limits on requests and pages.
"""
