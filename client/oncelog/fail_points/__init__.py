"""Fail points: named steps of a transaction at which a test can crash, delay, drop, duplicate or reorder the step.

`point` has the names of the steps, and the decorator `@fail_point`. The decorator has an effect only if the environment
variable ONCELOG_FAIL_POINTS is set, or if the process is armed (`arm`). `specification` (pure) parses that variable,
`controlled` has the faults that are set at run time, and `faults` applies the rules of the variable and these faults.
"""
