"""Computes the coordinates of pictures, as numbers; templates turn the numbers into SVG. Pure.

`scale` computes the positions of values on an axis, `bars` draws open transactions over time, `log_picture` draws the
batches of a log, and `lag_chart` draws the lag of a group. Horizontal positions are in percent of the width, so that a
picture fits any screen while its text keeps its size.
"""
