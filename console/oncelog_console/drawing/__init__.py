"""Where lines and boxes of the pictures go, as numbers: templates make SVG of them. Pure.

`scale` puts values on an axis, `bars` shows open transactions over time, `log_picture` the batches of a log, and
`lag_chart` how far a group was behind. Horizontal places are percent of the width, so that a picture fits any screen
while its letters keep their size.
"""
