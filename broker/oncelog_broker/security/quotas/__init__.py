"""Who may send and take how much, and how long to wait who did more (KIP-13, KIP-124, KIP-599). Pure: it is told the
time, and knows neither connections nor requests.

`limits` finds the quota that holds for somebody, `bucket` counts what was used of one and says how long to wait.
"""
