"""Fail points: named steps of a transaction at which a test can crash, delay, drop, duplicate or reorder the step.

`point` has the names and the decorator `@fail_point`, which has no effect unless the environment variable
ONCELOG_FAIL_POINTS is set or the process is armed (`arm`); `specification` parses that variable (pure); `controlled`
holds faults set at run time; `faults`
applies rules and faults.
"""
