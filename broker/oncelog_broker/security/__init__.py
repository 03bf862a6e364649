"""Who asks, and what they may do. Nothing in here knows connections or handlers: `server/` asks these rooms.

`principal` is who somebody turned out to be, `authorizer/` what they may do.
"""
