"""How the site of docs/ is made: `make docs`, by `mkdocs.yml`. For the build alone: nothing installed imports it.

`hooks` has the functions that MkDocs calls, `links` maps links between a checkout's files to the site's, and `offline`
checks that the built site needs no other host. `reference/` writes the pages that are made of the code: `make
reference`.
"""
