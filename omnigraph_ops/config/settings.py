"""Where things are and how much to do at once: every setting with its variable, default and meaning, and their list."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    NonNegativeFloat,
    NonNegativeInt,
    PlainValidator,
    PositiveFloat,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from omnigraph_ops.errors import InvalidInput, did_you_mean
from omnigraph_ops.models.optimize import BinaryCopy, RewritePolicy
from omnigraph_ops.quantities import exact_bytes, human_bytes, parse_bytes

MIB = 1024 * 1024
LONGEST_TTL_SECONDS = 3600.0
"""A lease that ends further away than this is damage, not a holder."""
PREFIX = "OMNIGRAPH_OPS_"
_CONCURRENCY = "OMNIGRAPH_MAINTENANCE_CONCURRENCY"
_OF_THE_CODE = frozenset({"auto", "publish_attempts"})
"""What no deployment sets."""
_SHOWN = 60
"""Characters of a wrong text in a sentence about it."""
_MALFORMED_ENTRY = "spark_entry"
"""The type of pydantic's error about an entry of `spark_stages`; its message starts with `must`."""
_MALFORMED = {
    "int_parsing": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be on or off (1 or 0, true or false, yes or no)",
    "enum": "must be {expected}",
    _MALFORMED_ENTRY: "must {must}",
}
"""What is wrong with the text of a variable, by the type of pydantic's error."""
_BOUNDS = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
}


_PATTERN = r"^\s*(repair(\s*=\s*\d{1,18}\s*([kKmMgGtT][iI]?[bB]?|[bB])?)?|(orphans|expire-rows)(\s*=\s*\d{1,18})?)\s*$"
_MOST = 2**63 - 1


class SparkStage(StrEnum):
    """A stage whose heavy part the tasks of DAGs may submit."""

    REPAIR = "repair"
    ORPHANS = "orphans"
    EXPIRE_ROWS = "expire-rows"


_COUNTED = {SparkStage.ORPHANS: ("files", 2_000_000), SparkStage.EXPIRE_ROWS: ("rows", 500_000_000)}
"""What the size of the other stages counts, with an example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkEntry:
    """A stage whose heavy part is submitted, from `at_least` bytes, files or rows on; 0 for always."""

    stage: SparkStage
    at_least: int = 0

    def __str__(self) -> str:
        """As somebody writes it: `repair=4GiB`. Pure."""
        if not self.at_least:
            return self.stage.value
        size = exact_bytes(self.at_least) if self.stage is SparkStage.REPAIR else str(self.at_least)
        return f"{self.stage.value}={size}"


def _entry(said: object) -> SparkEntry:
    if isinstance(said, SparkEntry):
        return said
    name, sign, size = (part.strip() for part in str(said).partition("="))
    try:
        stage = SparkStage(name)
    except ValueError:
        if name.isdigit():  # what follows a comma is an entry of its own
            raise _malformed_entry("have no commas in its numbers") from None
        raise _malformed_entry("be repair, orphans or expire-rows") from None
    return SparkEntry(stage=stage, at_least=_size(stage, size) if sign else 0)


def _size(stage: SparkStage, said: str) -> int:
    if stage in _COUNTED:
        what, example = _COUNTED[stage]
        # Python refuses to read numbers of thousands of digits.
        if said.isascii() and said.isdigit() and len(said) <= 18:
            return int(said)
        raise _malformed_entry(f"give {stage} a number of {what} of at most 18 digits, as in {stage}={example}")
    try:
        size = parse_bytes(said)
    except InvalidInput:
        raise _malformed_entry("give repair a size in bytes, as in repair=4GiB") from None
    if size > _MOST:
        raise _malformed_entry("give repair less than 8 EiB")
    return size


def _once(entries: tuple[SparkEntry, ...]) -> tuple[SparkEntry, ...]:
    distinct = tuple(dict.fromkeys(entries))
    stages = [entry.stage for entry in distinct]
    twice = next((stage for stage in stages if stages.count(stage) > 1), None)
    if twice is not None:
        raise _malformed_entry(f"name {twice} once, or with one size")
    return distinct


def _malformed_entry(must: str) -> PydanticCustomError:
    return PydanticCustomError(_MALFORMED_ENTRY, "must {must}", {"must": must})


def _checked_entry(said: str) -> str:
    _entry(said)
    return said


SparkEntries = Annotated[tuple[Annotated[SparkEntry, PlainValidator(_entry)], ...], AfterValidator(_once)]
"""As in `repair=4GiB, orphans=2000000, expire-rows=500000000`."""
EntryText = Annotated[str, AfterValidator(_checked_entry), WithJsonSchema({"type": "string", "pattern": _PATTERN})]
"""One of them, as a graphs file has it."""


def _as_the_engine(value: object) -> object:
    # The engine ignores anything that is not a positive integer; so do we, for the same variable.
    if not isinstance(value, str):
        return value
    return int(value) if value.isascii() and value.isdigit() and int(value) > 0 else 8


def _listed(value: object) -> object:
    return tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value


_AtLeastOne = Annotated[int, Field(ge=1)]
_Share = Annotated[float, Field(ge=0, le=1)]
_WORD = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)


class Settings(BaseSettings):
    """Deployment settings. Construct directly in code, or with `from_env` at the outer edge."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    concurrency: Annotated[_AtLeastOne, BeforeValidator(_as_the_engine)] = 8
    """Tables that are worked on at once; the engine's variable, read as the engine reads it."""
    small_table_bytes: NonNegativeInt = 64 * MIB
    """Below this a table is rewritten at once, without a journal to resume from."""
    spark_threshold_bytes: NonNegativeInt = 4096 * MIB
    """Rewrites of at least this many bytes go to Spark."""
    spark_copy_threshold_bytes: NonNegativeInt | None = None
    """Backups that copy at least this many bytes do it on Spark: in the DAG, and in the shell with `--spark`. Not set:
    the DAG copies every backup in its task."""
    spark_stages: Annotated[SparkEntries, NoDecode, BeforeValidator(_listed)] = ()
    """Stages whose heavy part the tasks of DAGs submit to Spark, of `repair` (its evidence), `orphans` and
    `expire-rows`, as in `repair=4GiB,orphans=2000000`: from so many bytes of a drifted table, files of a graph or rows
    of a plain Lance table on, and always without a size. A size holds for `--spark`, too; see docs/how-to/spark.md."""
    target_rows_per_fragment: _AtLeastOne = 1_048_576
    """The engine's value; any other one makes its next optimize rewrite what this one wrote."""
    commit_batch_tasks: NonNegativeInt = 0
    """Fragment groups per commit of a rewrite, 0 for all in one; a smaller batch bounds the driver's memory and what a
    conflict costs, and each batch has a window of its own."""
    policy: Annotated[RewritePolicy, _WORD] = RewritePolicy.CONVERGE
    """Which fragments a rewrite wants, `converge` or `tiered`; see docs/explanation/maintenance-cost.md."""
    tier_fan_in: Annotated[int, Field(ge=2)] = 4
    """`tiered`: how many neighbours of one size become one fragment."""
    tier_unindexed_share: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """`tiered`: indexes are folded once one leaves more than this share of the rows uncovered, 0 for every night;
    below 1."""
    cutoff: _AtLeastOne | None = None
    """Bound on fragments below the target size, per table; none by default, for `--auto` twice the cores."""
    auto_unindexed_share: _Share = 0.1
    """`--auto` takes tables with a larger share of rows that an index does not cover."""
    auto_deleted_share: _Share = 0.1
    """`--auto` takes tables with a larger share of deleted rows."""
    auto_off: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)] = ()
    """Tables that `--auto` never takes, as in `node:A,edge:B`."""
    auto: bool = False
    """Only tables that are past a threshold; an option of the run."""
    defer_index_remap: bool = False
    """Plain Lance without stable row ids: a rewrite leaves index files as they are; see docs/how-to/plain-lance.md."""
    retrain_vectors: bool = False
    """Build vector indexes anew whose number of partitions does not fit their rows. Queries with `limit 1` find less;
    see docs/explanation/vector-indexes.md."""
    purge_deleted: bool = False
    """Rewrite every fragment with a deleted row, and every index with entries of rows that are gone; see
    docs/how-to/row-retention.md."""
    binary_copy: Annotated[BinaryCopy, _WORD] = BinaryCopy.AUTO
    """Whether a rewrite copies encoded pages where no row is deleted and no column is a blob: `auto`, where they are
    large, `always` or `never`; see docs/how-to/spark.md."""
    max_concurrent_rewrites: NonNegativeInt = 0
    """Compaction tasks of a graph at once, in whatever process they run, 0 for no bound."""
    max_rewrite_bytes_per_second: NonNegativeInt = 0
    """Bytes that all of them read per second, on the average of two tasks, of which each reads at most ten seconds'
    worth; 0 for no bound."""
    max_deletes_per_second: NonNegativeInt = 0
    """Files that cleanup and orphans delete per second, 0 for no bound."""
    recovery_grace_seconds: NonNegativeFloat = 900.0
    """How old a foreign sidecar must be before `recover` finishes it."""
    lease_ttl_seconds: Annotated[float, Field(gt=0, le=LONGEST_TTL_SECONDS)] = 60.0
    """A committer lease that is not renewed for this long is dead."""
    lease_wait_seconds: NonNegativeFloat = 600.0
    """How long a committer waits for its turn."""
    window_share: Annotated[float, Field(gt=0, le=1)] = 0.005
    """The share of the time in which windows may be open while other writers publish; 1 for no pauses."""
    plan_ttl_seconds: PositiveFloat = 86_400.0
    """How long a plan may wait for its approval and be applied."""
    history_days: _AtLeastOne = 400
    """How long the record of a run stays in the history; see docs/reference/history.md."""
    exclusive: bool = False
    """Nobody else publishes during the run, so internal tables may be compacted."""
    engine_root: str | None = None
    """How the engine spells the graph's root, as its sidecars must; by default the absolute path."""
    engine: str | None = None
    """Path of the engine's binary, which deletes expired rows of graphs; see docs/how-to/row-retention.md."""
    engine_timeout_seconds: PositiveFloat = 600.0
    """How long one command of the engine may take before it is stopped."""
    text_indexers: str | None = None
    """Folder of the older pylance releases that write text indexes; by default below the prefix of this Python, where
    `omnigraph-ops install-text-indexer` puts them."""
    publish_attempts: _AtLeastOne = 6
    """The engine's budget: five retries after the first attempt."""

    def spark_from(self, stage: str) -> int | None:
        """From which size on the heavy part of a stage is submitted, 0 for always; None: it is not. Pure."""
        return next((entry.at_least for entry in self.spark_stages if entry.stage == stage), None)

    @property
    def fragment_cutoff(self) -> int:
        """The cutoff, by default twice the cores of this machine. Reads."""
        return self.cutoff if self.cutoff is not None else 2 * (os.cpu_count() or 1)

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Settings from the process environment; `InvalidInput` names a malformed variable. Reads."""
        env = os.environ if environment is None else environment
        names = {variable_of(name): f"{PREFIX}{name}".lower() for name in cls.model_fields}
        source = EnvSettingsSource(cls)
        source.env_vars = {names[name]: text.strip() for name, text in env.items() if name in names and text.strip()}
        try:
            return cls(**source())
        except InvalidInput as error:  # of a bound; the code knows the setting by its field
            name, _, said = str(error).partition(" ")
            raise InvalidInput(f"{(name in cls.model_fields and variable_of(name)) or name} {said}") from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read nothing from the environment unless `from_env` does. Pure."""
        return (init_settings,)

    @model_validator(mode="wrap")
    @classmethod
    def _in_a_sentence(cls, data: Any, handler: ModelWrapValidatorHandler[Settings]) -> Settings:
        try:
            return handler(data)
        except ValidationError as error:
            raise InvalidInput(_sentence(error.errors()[0])) from None


def variable_of(name: str) -> str:
    """The environment variable of a setting; empty for one that no deployment makes. Pure."""
    if name in _OF_THE_CODE:
        return ""
    return _CONCURRENCY if name == "concurrency" else f"{PREFIX}{name.upper()}"


def _sentence(error: ErrorDetails) -> str:
    name, said = str(error["loc"][0]), (_MALFORMED | _BOUNDS).get(error["type"])
    if said is None:
        return f"{name}: {error['msg']}, it is {error['input']}"
    limits = {key: str(value).replace("'", "") for key, value in error.get("ctx", {}).items()}
    if error["type"] in _BOUNDS:
        return f"{name} {said.format(**limits)}, it is {error['input']}"
    given = error["input"]
    text = repr(",".join(map(str, given)) if isinstance(given, tuple) else given)
    return f"{variable_of(name) or name} {said.format(**limits)}, it is {text[:_SHOWN]}"


_OF_THE_SHELL = ("OMNIGRAPH_OPS_AIRFLOW_URL", "OMNIGRAPH_OPS_AIRFLOW_TOKEN", "OMNIGRAPH_OPS_TRACEBACK")
"""Variables that only the shell reads; no run depends on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting that a deployment can make."""

    name: str
    variable: str
    default: str
    meaning: str
    value: str
    """What it is in the environment that was asked about."""
    is_set: bool
    """Whether that environment says so, rather than the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsReport:
    """All settings, in the order of the reference."""

    settings: tuple[Setting, ...]


def settings_report(environment: Mapping[str, str] | None = None) -> SettingsReport:
    """Every setting as the environment makes it; raises `InvalidInput` as `Settings.from_env` does. Reads."""
    env = os.environ if environment is None else environment
    found, base = Settings.from_env(env), Settings()
    rows = []
    for name, variable, meaning in _described():
        default, value = _text(name, getattr(base, name)), _text(name, getattr(found, name))
        is_set = bool(env.get(variable, "").strip())
        rows.append(Setting(name=name, variable=variable, default=default, meaning=meaning, value=value, is_set=is_set))
    return SettingsReport(settings=tuple(rows))


def misspelled_settings(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """A sentence for each variable that looks like a setting and is none. Reads."""
    env = os.environ if environment is None else environment
    known = {variable for _, variable, _ in _described()} | {*_OF_THE_SHELL}
    return tuple(
        f"{name} is no setting and changes nothing{did_you_mean(name, known, prefix=PREFIX)}"
        for name in sorted(env)
        if name.startswith(PREFIX) and name not in known
    )


def _described() -> Iterator[tuple[str, str, str]]:
    """(field, variable, meaning) of each setting that a deployment can make. Pure."""
    for name, field in Settings.model_fields.items():
        if variable := variable_of(name):
            yield name, variable, " ".join((field.description or "").split()).rstrip(".")


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{value} ({human_bytes(value)})"
    return f"{value:g}" if isinstance(value, float) else str(value)
