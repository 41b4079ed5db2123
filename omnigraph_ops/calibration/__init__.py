"""Measure from which size a rewrite pays on Spark. No stage uses it."""
