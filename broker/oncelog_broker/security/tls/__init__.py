"""TLS without connections: `stores` reads keys and certificates, `contexts` creates OpenSSL contexts from these keys
and certificates, and creates new contexts when files change, `names` maps certificates to principal names.
"""
