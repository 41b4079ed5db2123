"""Row retention: which rows expire by a policy, and deleting exactly those."""

from omnigraph_ops.stages.expire_rows.apply import expire_rows
from omnigraph_ops.stages.expire_rows.plan import plan_row_retention
from omnigraph_ops.stages.expire_rows.policy import RowPolicyEntry, parse_policies, read_policies

__all__ = ["RowPolicyEntry", "expire_rows", "parse_policies", "plan_row_retention", "read_policies"]
