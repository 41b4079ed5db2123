"""Genuine small graphs of both generations, for the demonstration, the tests and the benchmarks."""

from omnigraph_ops.demo.spec import DemoSpec, DemoSummary, TableSummary
from omnigraph_ops.demo.writer import write_demo_graph

__all__ = ["DemoSpec", "DemoSummary", "TableSummary", "write_demo_graph"]
