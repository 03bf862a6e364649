"""Logins: who uses the console, for how long, and with which rights in the cluster.

- `sessions` has the sessions, by the token in a cookie; their number and duration are limited.
- `oidc` is the login at an identity provider (OpenID Connect), by Authlib.
"""
