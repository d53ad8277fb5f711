"""What the crash workload needs: the step body, our processes, and a peer's."""
