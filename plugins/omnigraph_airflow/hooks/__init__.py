"""How tasks reach a graph."""
