"""A credit-risk agent that needs seven services, under faults. Run: `make demo`."""
