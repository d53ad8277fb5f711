"""A real HTTP service that can fail in every way, and a flow whose step calls it."""
