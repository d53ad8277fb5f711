"""Real scientific workflows, time scaled, through the engine; makespan against its lower bound."""
