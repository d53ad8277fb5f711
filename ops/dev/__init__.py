"""Everything on one machine in one command: broker, engines, key, topics."""
