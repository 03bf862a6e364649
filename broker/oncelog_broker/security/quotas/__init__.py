"""Who may send and take how much, and how long to wait who did more (KIP-13, KIP-124, KIP-599, KIP-612). Pure: it is
told the time, and knows neither connections nor requests.

`limits` finds the quota that holds for somebody, and `client_limits` are all that hold for one client; `usage` knows
how much of it they have used, in a `bucket` each, and says how long to wait. `observed` keeps of that what metrics
tell.
"""
