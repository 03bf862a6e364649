"""Coordinates of the pictures, as numbers: templates turn them into SVG. Pure.

`scale` puts values on an axis, `bars` shows open transactions over time, `log_picture` the batches of a log, and
`lag_chart` the lag of a group. Horizontal positions are in percent of the width, so that a picture fits any screen
while its text keeps its size.
"""
