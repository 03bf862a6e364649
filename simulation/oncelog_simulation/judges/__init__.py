"""The rules that a simulated cluster must obey, at each step and at the end.

`running`    the brokers that run, as judges see into them
`truth`      who is in sync and registered, as the metadata store has it
`leaders`    one leader in an epoch, whose high watermark never goes back
`committed`  every replica in sync has what was shown below a high watermark
`elections`  each state of a partition follows from the one before
`decisions`  a complete transaction has its markers everywhere
`logs`       what a log notes beside its batches is what they say
`laggards`   who has fallen behind leaves the ISR
`content`    what readers find in the end
`shared`     a share group loses no record and accepts none twice
`histories`  what clients were told, against what is there in the end
`resources`  nothing is left of clients that have ended
"""
