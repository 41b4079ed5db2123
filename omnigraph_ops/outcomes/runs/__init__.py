"""Runs while they are at work: their units, their journal in the graph, and what is made of one that was cut off."""
