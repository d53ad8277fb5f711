"""Snapshot chains: the context of a run at its versions, as bases and deltas.

`link` is the format of one link, `frame` its compressed payload, `chain` writes and reads chains,
`rebase` says when a new base pays, `cadence` after how many steps a snapshot does.
"""
