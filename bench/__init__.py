"""Benchmarks behind the performance claims: ratios measured in one run, never absolute promises."""
