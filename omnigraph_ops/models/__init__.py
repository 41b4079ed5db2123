"""The values that pass between stages: plans, outcomes, reports. No behaviour beyond derived fields.

Tokens and field names that the engine also prints keep the engine's spelling (`table_key`,
`manifest_version`, `drift_needs_repair`, ...); what is new stands beside them.
"""

from omnigraph_ops.models.cleanup import (
    CleanupPlan,
    CleanupReport,
    CleanupStats,
    OrphanedFork,
    ProtectedVersion,
    RetentionPolicy,
    TableCleanupPlan,
)
from omnigraph_ops.models.observe import (
    QuietState,
)
from omnigraph_ops.models.optimize import (
    Decision,
    Executor,
    IndexBuild,
    IndexFold,
    OptimizePlan,
    OptimizeReport,
    PendingIndex,
    SkipReason,
    TablePlan,
    TableStats,
    UnitWindow,
)
from omnigraph_ops.models.recovery import (
    CheckReport,
    CheckStatus,
    DriftFinding,
    RecoverReport,
    RecoveryOutcome,
    SidecarClass,
    SidecarFinding,
    UnlockReport,
)
from omnigraph_ops.models.repair import (
    Classification,
    RepairAction,
    RepairPreview,
    RepairReport,
    RepairRow,
)

__all__ = [
    "CheckReport",
    "CheckStatus",
    "Classification",
    "CleanupPlan",
    "CleanupReport",
    "CleanupStats",
    "Decision",
    "DriftFinding",
    "Executor",
    "IndexBuild",
    "IndexFold",
    "OptimizePlan",
    "OptimizeReport",
    "OrphanedFork",
    "PendingIndex",
    "ProtectedVersion",
    "QuietState",
    "RecoverReport",
    "RecoveryOutcome",
    "RepairAction",
    "RepairPreview",
    "RepairReport",
    "RepairRow",
    "RetentionPolicy",
    "SidecarClass",
    "SidecarFinding",
    "SkipReason",
    "TableCleanupPlan",
    "TablePlan",
    "TableStats",
    "UnitWindow",
    "UnlockReport",
]
