"""Reading and appending by the command line: short-lived, bounded, without a group."""
