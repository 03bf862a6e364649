"""How clients of a query log in to a cluster: stores of certificates, tokens.

All of it can be pickled, for the tasks of Spark.

tls_stores.py  truststores and keystores (PEM, PKCS12, JKS) as the TLS context of a client
jks.py         (pure) the certificates and keys of a JKS file
tokens.py      OAUTHBEARER: tokens from an endpoint, with client credentials, or from a file
"""
