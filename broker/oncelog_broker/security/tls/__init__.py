"""TLS without connections: `stores` reads keys and certificates, `contexts` makes OpenSSL's contexts of them and makes
them anew when files change, `names` is who a certificate is about.
"""
