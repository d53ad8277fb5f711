"""A recovery storm as a discrete-event simulation, steered by the project's own pure code."""
