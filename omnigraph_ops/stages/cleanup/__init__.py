"""Cleanup: remove old versions and orphaned forks, exactly those that a plan listed."""
