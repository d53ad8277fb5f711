"""Fault points, pure: the actor of a dependency, and what a partition knows of it."""
