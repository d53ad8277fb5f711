"""Loads and readings that the engine's benchmarks share."""
