"""How the site of docs/ is made: `make docs`, by `mkdocs.yml`. For the build alone: nothing installed imports it.

`hooks` is what MkDocs calls, `links` sends links from a checkout's files to the site's, and `offline` looks whether
what was built needs anything from elsewhere. `reference/` writes the pages that are made of the code: `make reference`.
"""
