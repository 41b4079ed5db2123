"""Optimize: fold indexes, rewrite small fragments, publish; content-preserving throughout."""
