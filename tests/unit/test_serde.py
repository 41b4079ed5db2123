"""Every value that crosses a process boundary comes back equal, and a digest pins all of it."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph_ops import models, serde
from omnigraph_ops.coordination.guards import Operation
from omnigraph_ops.coordination.lease import Lease
from omnigraph_ops.demo import DemoSpec, DemoSummary
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph.sidecars import Sidecar
from omnigraph_ops.models.cleanup import CleanupPlan, RetentionPolicy, TableCleanupPlan
from omnigraph_ops.models.freeze import RelocatedFile
from omnigraph_ops.models.optimize import SkipReason, TableStats
from omnigraph_ops.models.runs import SubmitOutcome

# The first has contents of a file and is not sent; of the second, the value is of any type.
NOT_AS_THEY_ARE = {RelocatedFile, SubmitOutcome}
MODELS = [
    *(
        value
        for module in pkgutil.iter_modules(models.__path__, f"{models.__name__}.")
        for value in vars(importlib.import_module(module.name)).values()
        if dataclasses.is_dataclass(value) and value.__module__ == module.name and value not in NOT_AS_THEY_ARE
    ),
    DemoSpec,
    DemoSummary,
    Operation,
    Lease,
    Sidecar,
]

# JSON has no NaN, and no stage makes one.
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))

TABLE = TableCleanupPlan(
    table_key="node:Person", table_path="nodes/1", pinned_version=9, lance_head_version=9, versions=(1, 2)
)
PLAN = CleanupPlan(
    uri="/g",
    stamp=6,
    policy=RetentionPolicy(keep_versions=2),
    planned_at_us=1,
    expires_at_us=2,
    tables=(TABLE,),
    orphaned_forks=(),
    digest="",
)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_value_comes_back_equal(model: type, data: st.DataObject) -> None:
    value = data.draw(st.from_type(model))
    text = serde.dumps(value)
    assert serde.from_json(model, text) == value
    assert serde.from_json(model, serde.to_json(value)) == value
    assert serde.digest(serde.from_json(model, text)) == serde.digest(value)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_models_are_frozen_values(model: Any) -> None:
    assert model.__dataclass_params__.frozen
    assert "__slots__" in model.__dict__


def test_the_digest_is_of_this_form_for_good() -> None:
    # Approvals outlive a release: a digest that changes by itself would void them.
    assert serde.digest(PLAN) == "sha256:574a76f02baf7bd642570e3e84c10ab1d097920df6a08c28d4c780c6f4de0ada"


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAN, uri="/h"),
        replace(PLAN, stamp=3),
        replace(PLAN, policy=RetentionPolicy(keep_versions=1)),
        replace(PLAN, policy=RetentionPolicy(keep_versions=2, older_than_secs=0)),
        replace(PLAN, planned_at_us=2),
        replace(PLAN, tables=(replace(TABLE, versions=(1,)),)),
        replace(PLAN, tables=(replace(TABLE, table_path="nodes/2"),)),
        replace(PLAN, tables=()),
        replace(PLAN, tables=(TABLE, TABLE)),
    ],
)
def test_any_change_changes_the_digest(other: CleanupPlan) -> None:
    assert serde.digest(other) != serde.digest(PLAN)


def changed(**fields: object) -> str:
    return json.dumps({**serde.to_json(PLAN), **fields})


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "document"),
        ("{", "document"),
        ("[]", "document"),
        ("null", "document"),
        ('"text"', "document"),
        ("{}", "uri"),
        (changed(stamp="six"), "stamp"),
        (changed(tables=[{}]), "tables.0.table_key"),
        (changed(tables=None), "tables"),
        (changed(policy={"keep_versions": "banana"}), "policy.keep_versions"),
    ],
)
def test_malformed_json_names_the_field(text: str, where: str) -> None:
    with pytest.raises(InvalidInput, match=f"^not a valid CleanupPlan: {where}: "):
        serde.from_json(CleanupPlan, text)


@dataclass(frozen=True, kw_only=True)
class Term:
    until: float
    number: int = 0


@pytest.mark.parametrize(
    "text",
    [
        *('{"until": true}', '{"until": "1"}', '{"until": NaN}', '{"until": Infinity}', '{"until": -1e400}'),
        *('{"until": 1, "number": true}', '{"until": 1, "number": "2"}', '{"until": 1, "number": 2.0}'),
    ],
)
def test_a_number_is_a_number(text: str) -> None:
    assert serde.from_json(Term, '{"until": 1, "number": 2}') == Term(until=1.0, number=2)
    with pytest.raises(InvalidInput, match=r"^not a valid Term: "):
        serde.from_json(Term, text)


def test_enums_travel_as_tokens_and_tuples_as_lists() -> None:
    table = TableStats(table_key="k", skipped=SkipReason.DRIFT)
    document = serde.to_json(table)
    assert (document["skipped"], document["pending_indexes"]) == ("drift_needs_repair", [])
