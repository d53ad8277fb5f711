"""The cold tier: segments of runs and events as objects of any S3.

`objects` is the port, `s3` and `memory` implement it; `segment` is the format of a segment.
"""
