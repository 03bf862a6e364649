"""Configures how clients of a query log in to a cluster: certificate stores and tokens.

All objects can be pickled, because Spark sends them to its tasks.

tls_stores.py  truststores and keystores (PEM, PKCS12, JKS) as the TLS context of a client
jks.py         (pure) the certificates and keys of a JKS file
tokens.py      OAUTHBEARER: tokens from an endpoint, with client credentials, or from a file
"""
