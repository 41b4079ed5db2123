"""The graph format: what the engine writes on disk, and nothing else."""
