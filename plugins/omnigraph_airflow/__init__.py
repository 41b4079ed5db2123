"""The Airflow face of omnigraph_ops: thin operators, one sensor, one hook, no logic of their own.

Stage modules of `omnigraph_ops` are imported inside `execute`, because every Airflow component
imports this package and `import lance` alone costs a second and a half.
"""

from __future__ import annotations

__version__ = "0.2.0"
