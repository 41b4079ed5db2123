"""What maintenance does to a graph: one folder per stage."""
