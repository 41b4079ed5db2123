"""Row retention: which rows expire by a policy, and deleting exactly those."""

from omnigraph_ops.retention.apply import expire_rows
from omnigraph_ops.retention.plan import plan_row_retention
from omnigraph_ops.retention.policy import RowPolicyEntry, parse_policies, read_policies

__all__ = ["RowPolicyEntry", "expire_rows", "parse_policies", "plan_row_retention", "read_policies"]
