"""Configures how clients of a query log in to a cluster: certificate stores and tokens.

All objects can be pickled, because Spark sends them to its tasks.

- `tls_stores.py` creates the TLS context of a client from truststores and keystores (PEM, PKCS12, JKS).
- `jks.py` (pure) reads the certificates and keys of a JKS file.
- `tokens.py` gets tokens for OAUTHBEARER from an endpoint, with client credentials, or from a file.
"""
