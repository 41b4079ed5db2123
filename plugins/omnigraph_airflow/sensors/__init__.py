"""What the run waits for."""
