"""Settings come from the environment, and a bad one is named."""

from __future__ import annotations

import pytest

from omnigraph_ops.config.settings import Settings, SparkStage
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.models.optimize import BinaryCopy, RewritePolicy
from omnigraph_ops.stages.registry import PLANNED


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_env({}) == Settings()
    assert Settings.from_env({"OMNIGRAPH_OPS_SMALL_TABLE_BYTES": " "}) == Settings()


def test_every_variable_is_read() -> None:
    settings = Settings.from_env(
        {
            "OMNIGRAPH_MAINTENANCE_CONCURRENCY": "3",
            "OMNIGRAPH_OPS_SMALL_TABLE_BYTES": "10",
            "OMNIGRAPH_OPS_SPARK_THRESHOLD_BYTES": "20",
            "OMNIGRAPH_OPS_RECOVERY_GRACE_SECONDS": "1.5",
            "OMNIGRAPH_OPS_LEASE_TTL_SECONDS": "30",
            "OMNIGRAPH_OPS_LEASE_WAIT_SECONDS": "0",
            "OMNIGRAPH_OPS_EXCLUSIVE": "Yes",
            "OMNIGRAPH_OPS_BINARY_COPY": "never",
            "OMNIGRAPH_OPS_POLICY": "Tiered",
            "OMNIGRAPH_OPS_TIER_FAN_IN": "8",
            "OMNIGRAPH_OPS_TIER_UNINDEXED_SHARE": "0.25",
            "OMNIGRAPH_OPS_CUTOFF": "5",
            "OMNIGRAPH_OPS_AUTO_UNINDEXED_SHARE": "0.2",
            "OMNIGRAPH_OPS_AUTO_DELETED_SHARE": "0.3",
            "OMNIGRAPH_OPS_AUTO_OFF": "node:A, edge:B,",
            "OMNIGRAPH_OPS_ENGINE_ROOT": "./g",
        }
    )
    assert settings == Settings(
        concurrency=3,
        small_table_bytes=10,
        spark_threshold_bytes=20,
        recovery_grace_seconds=1.5,
        lease_ttl_seconds=30,
        lease_wait_seconds=0,
        exclusive=True,
        binary_copy=BinaryCopy.NEVER,
        policy=RewritePolicy.TIERED,
        tier_fan_in=8,
        tier_unindexed_share=0.25,
        cutoff=5,
        auto_unindexed_share=0.2,
        auto_deleted_share=0.3,
        auto_off=("node:A", "edge:B"),
        engine_root="./g",
    )


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "1.5", "\u00b2"])
def test_the_engines_variable_is_read_as_the_engine_reads_it(text: str) -> None:
    assert Settings.from_env({"OMNIGRAPH_MAINTENANCE_CONCURRENCY": text}).concurrency == Settings().concurrency


@pytest.mark.parametrize("text", ["banana", "1.5", "1e3", "12MB"])
def test_a_malformed_number_is_named(text: str) -> None:
    with pytest.raises(InvalidInput, match="OMNIGRAPH_OPS_SMALL_TABLE_BYTES must be a number"):
        Settings.from_env({"OMNIGRAPH_OPS_SMALL_TABLE_BYTES": text})


@pytest.mark.parametrize(
    ("text", "on"),
    [
        *((text, False) for text in ("", " ", "0", "False", "no", "OFF")),
        *((text, True) for text in ("1", " true ", "YES", "On")),
    ],
)
def test_a_switch_has_many_spellings(text: str, on: bool) -> None:
    settings = Settings.from_env({"OMNIGRAPH_OPS_EXCLUSIVE": text, "OMNIGRAPH_OPS_DEFER_INDEX_REMAP": text})
    assert (settings.exclusive, settings.defer_index_remap) == (on, on)


@pytest.mark.parametrize("name", ["OMNIGRAPH_OPS_EXCLUSIVE", "OMNIGRAPH_OPS_DEFER_INDEX_REMAP"])
@pytest.mark.parametrize("text", ["ture", "2", "none", "-"])
def test_a_malformed_switch_is_named_and_never_off(name: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name} must be on or off .*, it is '{text}'"):
        Settings.from_env({name: text})


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_a_time_that_never_comes_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="OMNIGRAPH_OPS_LEASE_TTL_SECONDS must be a finite number"):
        Settings.from_env({"OMNIGRAPH_OPS_LEASE_TTL_SECONDS": text})


@pytest.mark.parametrize(
    "fields",
    [
        {"tier_unindexed_share": 1.0},
        {"tier_unindexed_share": -0.1},
        {"concurrency": 0},
        {"publish_attempts": 0},
        {"target_rows_per_fragment": 0},
        {"small_table_bytes": -1},
        {"spark_threshold_bytes": -1},
        {"recovery_grace_seconds": -0.1},
        {"lease_ttl_seconds": 0},
        {"lease_wait_seconds": -1},
        {"tier_fan_in": 1},
        {"cutoff": 0},
        {"auto_unindexed_share": 1.5},
        {"auto_deleted_share": -0.1},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        Settings(**fields)


def test_an_unknown_policy_is_named_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="OMNIGRAPH_OPS_POLICY must be converge or tiered, it is 'best'"):
        Settings.from_env({"OMNIGRAPH_OPS_POLICY": "best"})


def test_stages_that_go_to_spark_are_those_that_have_jobs() -> None:
    assert set(SparkStage) == {stage.name for stage in PLANNED if stage.spark_help}
    with pytest.raises(InvalidInput, match="OMNIGRAPH_OPS_SPARK_STAGES must be repair, orphans or expire-rows, it is"):
        Settings.from_env({"OMNIGRAPH_OPS_SPARK_STAGES": "orphan"})


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("CUTOFF", "0", "must be at least 1, it is 0"),
        ("WINDOW_SHARE", "0", "must be above 0, it is 0"),
        ("TIER_UNINDEXED_SHARE", "1", "must be below 1, it is 1"),
        ("LEASE_TTL_SECONDS", "4000", "must be at most 3600, it is 4000"),
    ],
)
def test_a_value_out_of_bounds_is_one_sentence(name: str, text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Settings.from_env({f"OMNIGRAPH_OPS_{name}": text})
    assert str(refused.value).replace(".0", "") == f"OMNIGRAPH_OPS_{name} {sentence}"
