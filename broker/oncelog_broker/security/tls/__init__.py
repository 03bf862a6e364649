"""TLS without connections: `stores` reads keys and certificates, `contexts` makes OpenSSL contexts from them and renews
the contexts when files change, `names` maps certificates to principal names.
"""
