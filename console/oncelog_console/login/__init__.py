"""Logins: who uses the console, for how long, and with which rights in the cluster.

sessions.py    sessions by the token in a cookie, bounded and expiring
oidc.py        the login at an identity provider (OpenID Connect), by Authlib
"""
