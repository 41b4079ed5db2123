"""The options of `plan` and `optimize` that bound a run; kept apart from the verbs, which import Lance."""

from __future__ import annotations

import argparse

from omnigraph_ops.cli.values import positive, seconds, size
from omnigraph_ops.models.optimize import RewritePolicy


def add_budget_options(parser: argparse.ArgumentParser) -> None:
    """Add budgets, the policy and the thresholds."""
    budget = parser.add_argument_group(
        "budget", "Tables come by benefit per byte; what does not fit is deferred, said, and planned again next time."
    )
    budget.add_argument("--max-bytes", type=size, metavar="SIZE", help="write about this much at most, e.g. 20GiB")
    budget.add_argument("--max-tables", type=positive, metavar="N", help="at most N tables")
    budget.add_argument(
        "--deadline",
        type=seconds,
        metavar="DURATION",
        help="no table starts later than this, e.g. 2h; running ones are finished",
    )
    policy = parser.add_argument_group("policy")
    policy.add_argument(
        "--policy",
        choices=[p.value for p in RewritePolicy],
        help="converge: one fragment up to the target size (default); tiered: merge fragments of like size, so that a "
        "table that grows by small loads is not rewritten every night",
    )
    policy.add_argument(
        "--cutoff",
        type=positive,
        metavar="N",
        help="converge: rewrite only tables with more than N small fragments; tiered: leave at most N of them "
        "(default for --auto: twice the cores)",
    )
    policy.add_argument(
        "--auto",
        action="store_true",
        help="only tables past a threshold: small fragments, unindexed rows, deleted rows",
    )
    policy.add_argument(
        "--defer-index-remap",
        action="store_true",
        help="plain Lance without stable row ids: rewrites leave index files as they are, Lance notes where rows went",
    )
