"""Fail points: named steps on the way of a transaction at which a test may crash, delay, drop, duplicate or reorder.

`point` the names and the mark `@fail_point`, which costs nothing unless ONCELOG_FAIL_POINTS is set or the process is
armed; `specification` what that variable may say (pure); `controlled` the faults that are set while the process runs;
`faults` does them.
"""
