"""Rewrites that survive their process: a journal in the graph, resumed by the next run of the same table."""
