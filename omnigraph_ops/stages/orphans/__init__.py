"""Orphans: remove what no version of any dataset, branch or tag refers to, exactly what a plan listed."""
