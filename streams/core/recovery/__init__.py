"""What comes back first, how long it takes, and what a recovery would do. Pure."""
