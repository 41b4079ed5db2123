"""Graphs on a real S3 server, one server per worker."""

from tests.support.s3 import bucket, s3, s3_graph, s3_server

__all__ = ["bucket", "s3", "s3_graph", "s3_server"]
