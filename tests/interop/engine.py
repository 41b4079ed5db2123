"""The real engine as an oracle: its own command line, one process per call."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

BINARIES = {3: "OMNIGRAPH_BIN_STAMP3", 6: "OMNIGRAPH_BIN_STAMP6"}

SCHEMA = """\
node Person {
    name: String @key
    age: I64? @index
    bio: String? @index
    active: Bool? @index
    joined: DateTime?
    tier: enum(free, pro, team)? @index
    nicknames: [String]?
}
node Project {
    code: String @key
    budget: F64?
    face: Vector(4)? @index
}
edge Likes: Person -> Person {
    since: Date?
}
edge Leads: Person -> Project
"""
EVOLVED_SCHEMA = SCHEMA.replace("    budget: F64?\n", "    budget: F64?\n    motto: String? @index\n")


@dataclass(frozen=True, slots=True)
class Engine:
    """One release of the engine and the stamp it writes."""

    binary: str
    stamp: int

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([self.binary, *arguments], capture_output=True, text=True, timeout=900, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def init(self, graph: Path, schema: str = SCHEMA) -> None:
        source = graph.with_suffix(".pg")
        source.write_text(schema)
        self.run("init", "--schema", str(source), str(graph))

    def apply_schema(self, graph: Path, schema: str, *, allow_data_loss: bool = False) -> None:
        source = graph.with_suffix(".pg")
        source.write_text(schema)
        words = ("--allow-data-loss",) * allow_data_loss
        self.run("schema", "apply", "--schema", str(source), "--store", str(graph), *words)

    def load(self, graph: Path, rows: list[dict[str, object]], *, mode: str = "append", branch: str = "main") -> None:
        data = graph.with_suffix(".jsonl")
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.run("load", "--data", str(data), "--mode", mode, "--branch", branch, "--quiet", str(graph))

    def export(self, graph: Path, branch: str = "main") -> list[str]:
        """Every row of a branch, sorted: the oracle for "rows never change"."""
        return sorted(self.run("export", "--store", str(graph), "--branch", branch).stdout.splitlines())

    def optimize(self, graph: Path) -> dict[str, dict[str, object]]:
        report = json.loads(self.run("optimize", "--json", str(graph)).stdout)
        return {table["table_key"]: table for table in report["tables"]}

    def delete_person(
        self, graph: Path, name: str, *, branch: str = "main", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        query = f'query d() {{ delete Person where name = "{name}" }}'
        return self.run("mutate", "--store", str(graph), "--branch", branch, "-e", query, "--quiet", check=check)


def engine(stamp: int) -> Engine:
    """The engine of a generation, or a visible skip."""
    binary = os.environ.get(BINARIES[stamp])
    if not binary:
        pytest.skip(f"{BINARIES[stamp]} names no engine binary")
    return Engine(binary=binary, stamp=stamp)


def people(start: int, count: int, *, bio: str = "likes lance graphs") -> list[dict[str, object]]:
    """`count` people with projects and edges, deterministic by their number."""
    rows: list[dict[str, object]] = []
    for n in range(start, start + count):
        data = {"name": f"p{n}", "age": n, "bio": f"{bio} {n}", "active": n % 2 == 0, "tier": "pro"}
        rows.append({"type": "Person", "data": data})
        face = [float(n % 7), 1.0, 0.5, float(n % 3)]
        rows.append({"type": "Project", "data": {"code": f"c{n}", "budget": n * 1.5, "face": face}})
        rows.append({"edge": "Leads", "from": f"p{n}", "to": f"c{n}"})
        if n > start:
            rows.append({"edge": "Likes", "from": f"p{n}", "to": f"p{n - 1}"})
    return rows
