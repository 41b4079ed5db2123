"""The entries of `OMNIGRAPH_OPS_SPARK_STAGES`: which stages are submitted to Spark, and from which size on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.quantities import exact_bytes, parse_bytes

MALFORMED_ENTRY = "spark_entry"
"""The type of pydantic's error about an entry; its message starts with `must`."""
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
            raise _malformed("have no commas in its numbers") from None
        raise _malformed("be repair, orphans or expire-rows") from None
    return SparkEntry(stage=stage, at_least=_size(stage, size) if sign else 0)


def _size(stage: SparkStage, said: str) -> int:
    if stage in _COUNTED:
        what, example = _COUNTED[stage]
        # Python refuses to read numbers of thousands of digits.
        if said.isascii() and said.isdigit() and len(said) <= 18:
            return int(said)
        raise _malformed(f"give {stage} a number of {what} of at most 18 digits, as in {stage}={example}")
    try:
        size = parse_bytes(said)
    except InvalidInput:
        raise _malformed("give repair a size in bytes, as in repair=4GiB") from None
    if size > _MOST:
        raise _malformed("give repair less than 8 EiB")
    return size


def _once(entries: tuple[SparkEntry, ...]) -> tuple[SparkEntry, ...]:
    distinct = tuple(dict.fromkeys(entries))
    stages = [entry.stage for entry in distinct]
    twice = next((stage for stage in stages if stages.count(stage) > 1), None)
    if twice is not None:
        raise _malformed(f"name {twice} once, or with one size")
    return distinct


def _malformed(must: str) -> PydanticCustomError:
    return PydanticCustomError(MALFORMED_ENTRY, "must {must}", {"must": must})


def _checked(said: str) -> str:
    _entry(said)
    return said


SparkEntries = Annotated[tuple[Annotated[SparkEntry, PlainValidator(_entry)], ...], AfterValidator(_once)]
"""As in `repair=4GiB, orphans=2000000, expire-rows=500000000`."""
EntryText = Annotated[str, AfterValidator(_checked), WithJsonSchema({"type": "string", "pattern": _PATTERN})]
"""One of them, as a graphs file has it."""
