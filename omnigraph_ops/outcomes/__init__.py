"""What is kept of runs: their journal while they work, the history, and the audit log."""
