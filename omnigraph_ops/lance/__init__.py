"""The typed door to pylance: datasets, commits, rewrites, indexes, and one table of its errors."""
