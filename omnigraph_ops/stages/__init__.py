"""What maintenance does to a graph: one folder per stage.

Whoever imports a stage has the registry, too: of a run that was cut off each unit is told by its own stage.
"""

from omnigraph_ops.stages import registry as registry
