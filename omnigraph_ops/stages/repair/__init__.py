"""Repair: publish existing heads of drifted tables, shown with evidence about what differs."""
