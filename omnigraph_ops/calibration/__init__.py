"""Measure where Spark begins to pay on this deployment. No stage uses it.

The same work in process and as a submit, at two sizes. Each way costs a fixed time plus time per byte or file; the
threshold is where the two lines cross.
"""
