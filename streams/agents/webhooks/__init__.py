"""Posts packages for people to the targets that the policy lists.

Who owns a partition posts its packages. What is settled stands in the offset of a consumer group of
the target's own, so that whoever comes after goes on there.
"""
