"""The HTTP listener, off unless `http.listener` is set; what it runs on (uvicorn, h11) is loaded only then.

`http_listener` binds and accepts, `bounded` says how small and short each connection is, `pages` are what is answered:
metrics, and `health`. `serving` puts them together, `telling` does so for a broker that is asked to, and `document`
makes docs/metrics.md of all this.
"""
