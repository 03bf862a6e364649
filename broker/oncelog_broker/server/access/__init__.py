"""Handlers of logins, users, rights and quotas.

Logins: `sasl_handshake`, `sasl_authenticate`. Rights: `create_acls`, `delete_acls`, `describe_acls`, with `acl_fields`.
Users: `alter_user_scram_credentials`, `describe_user_scram_credentials`. Quotas: `alter_client_quotas`,
`describe_client_quotas`, with `quota_fields`. `services` declares what these handlers may use.
"""
