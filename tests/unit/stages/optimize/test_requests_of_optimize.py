"""What one run of optimize says in place of the deployment's settings."""

from __future__ import annotations

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models.optimize import RewritePolicy
from omnigraph_ops.requests import build
from omnigraph_ops.stages.optimize.stage import OptimizeRequest


def test_what_one_run_says_is_checked_and_the_rest_is_the_deployments() -> None:
    deployed = Settings.from_env({"OMNIGRAPH_OPS_CUTOFF": "3", "OMNIGRAPH_OPS_SPARK_STAGES": "orphans"})
    tiered = build(OptimizeRequest, {"policy": "tiered", "auto": True}).settings(deployed)
    assert (tiered.policy, tiered.cutoff, tiered.auto) == (RewritePolicy.TIERED, 3, True)
    assert tiered.spark_stages == deployed.spark_stages
    with pytest.raises(InvalidInput, match="cutoff"):
        build(OptimizeRequest, {"cutoff": -1})


@pytest.mark.parametrize("name", ["defer_index_remap", "retrain_vectors", "purge_deleted", "exclusive"])
def test_what_is_off_by_default_is_done_where_the_deployment_or_the_run_asks(name: str) -> None:
    def asked(*, deployment: bool, run: bool) -> bool:
        settings = Settings.model_validate({name: deployment})
        return bool(getattr(build(OptimizeRequest, {name: run}).settings(settings), name))

    assert [asked(deployment=of, run=run) for of in (False, True) for run in (False, True)] == [
        *(False, True),
        *(True, True),
    ]
