"""Measure where Spark begins to pay on this deployment. No stage uses it.

The same work in process and as a submit, at two sizes. Each way costs a fixed time plus time per byte or file; the
threshold is where the two lines cross.
"""

from omnigraph_ops.calibration.jobs import Calibration, calibrate, calibration_view
from omnigraph_ops.calibration.rewrites import Line

__all__ = ["Calibration", "Line", "calibrate", "calibration_view"]
