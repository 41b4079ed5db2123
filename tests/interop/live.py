"""One round of the campaign: the engine writes, this tool optimizes without pause, one process of either is killed."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.lance_manifest import version_record
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.lance.commits import OPERATION_PROPERTY
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.recovery.check import check
from omnigraph_ops.stages.recovery.recover import recover
from omnigraph_ops.stages.repair.run import preview_repair
from tests.crash.harness_state import check_lineage
from tests.interop.engine import Engine, people

WRITES = 10
_MOST_WRITES = 60
"""A round goes on beyond its writes until this tool has had one pass beside them."""
PACE = Settings().window_share
_OPTIMIZE = """
import sys, time
from omnigraph_ops.errors import OpsError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.stages.optimize.run import optimize_all
from omnigraph_ops.config.settings import Settings
settings = Settings(small_table_bytes=int(sys.argv[2]), window_share=float(sys.argv[3]))
open_graph(sys.argv[1], settings).state()
print("ready", flush=True)
while True:
    try:
        report = optimize_all(open_graph(sys.argv[1], settings))
        print("pass", flush=True)
        for table in report.failed:
            print("failed", table.table_key, str(table.error).replace(chr(10), " "), flush=True)
    except OpsError as error:
        print("refused", str(error).replace(chr(10), " "), flush=True)
"""


@dataclass(slots=True)
class Outcome:
    """What a round came to."""

    seed: int
    writes: int = 0
    refused: list[str] = field(default_factory=list)
    """What the engine said of the writes that it refused, one line each."""
    passes: int = 0
    commits: int = 0
    """How many commits of this tool are in the tables at the end."""
    problems: list[str] = field(default_factory=list)
    killed: str = ""
    said: list[str] = field(default_factory=list)
    """What our runs could not do, for whoever looks into a problem."""


class Model:
    """Names of people that must be there, and those that may be."""

    def __init__(self, names: set[str]) -> None:
        self.sure, self.maybe = set(names), set[str]()

    def load(self, names: set[str], ok: bool) -> None:
        self.sure |= names if ok else set()
        self.maybe |= names

    def delete(self, name: str, ok: bool) -> None:
        self.sure.discard(name)
        self.maybe = self.maybe - {name} if ok else self.maybe | {name}

    def problems(self, found: set[str], where: str) -> list[str]:
        lost, strange = self.sure - found, found - self.sure - self.maybe
        lines = [f"{where}: {len(lost)} rows lost, {sorted(lost)[:3]}"] if lost else []
        return lines + ([f"{where}: {len(strange)} rows came back, {sorted(strange)[:3]}"] if strange else [])


@dataclass(slots=True)
class Round:
    """One graph, one engine, one optimizer."""

    oracle: Engine
    graph: Path
    seed: int
    small_table_bytes: int
    share: float = PACE
    """Of the time for windows; 1 for as many as there can be."""
    maintainer: str = "ours"
    """`engine` for its own optimize in a loop, `nobody` for none."""
    kill: bool = True

    def run(self) -> Outcome:
        """Write, maintain, kill once, settle, judge."""
        chance, outcome = random.Random(self.seed), Outcome(self.seed)
        victim = chance.choice(["engine", "ours"]) if self.kill else ""
        outcome.killed = victim
        turn, delay = chance.randrange(WRITES), chance.uniform(0.0, 0.4)
        models = {"main": Model({f"p{n}" for n in range(30)})}
        optimizer = self._optimizer()
        try:
            for number in range(1, _MOST_WRITES + 1):
                if number > WRITES and (optimizer is None or self._passes()):
                    break
                hit = victim if number == turn + 1 else ""
                self._write(number, chance, models, outcome, optimizer, hit, delay)
                if hit == "ours":
                    optimizer = self._optimizer()
        finally:
            self._stop(optimizer, outcome)
        self._judge(models, outcome)
        return outcome

    def _write(  # noqa: PLR0917 - the state of one round, passed once
        self,
        number: int,
        chance: random.Random,
        models: dict[str, Model],
        outcome: Outcome,
        optimizer: subprocess.Popen[str] | None,
        hit: str,
        delay: float,
    ) -> None:
        branch = chance.choice(list(models))
        kind = chance.choices(["append", "merge", "delete", "branch"], [5, 2, 3, 1])[0]
        model, names = models[branch], {f"p{n}" for n in range(number * 100, number * 100 + 4)}
        if kind == "delete" and model.sure:
            name = chance.choice(sorted(model.sure))
            query = f'query d() {{ delete Person where name = "{name}" }}'
            arguments = ["mutate", "--store", str(self.graph), "-e", query, "--branch", branch, "--quiet"]
        elif kind == "branch":
            arguments = ["branch", "create", "--store", str(self.graph), f"b{number}"]
        else:
            kind = "merge" if kind == "merge" else "append"
            data = self.graph.with_suffix(f".{number}.jsonl")
            data.write_text("".join(json.dumps(row) + "\n" for row in people(number * 100, 4)))
            arguments = ["load", "--data", str(data), "--mode", kind, "--branch", branch, "--quiet", str(self.graph)]
        with subprocess.Popen(
            [self.oracle.binary, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as writer:
            if hit:
                time.sleep(delay)
                target = writer if hit == "engine" else optimizer
                if target is not None:
                    target.send_signal(signal.SIGKILL)
            _, errors = writer.communicate(timeout=900)
        ok, killed = writer.returncode == 0, writer.returncode < 0
        outcome.writes += not killed
        if not ok and not killed:
            outcome.refused.append(f"{kind}: {first_error(errors)}")
        if kind == "delete":
            model.delete(name, ok)
        elif kind == "branch" and ok:
            models[f"b{number}"] = Model(model.sure if branch == "main" else models["main"].sure)
            models[f"b{number}"].maybe |= models["main"].maybe
        elif kind in {"append", "merge"}:
            model.load(names, ok)

    def _optimizer(self) -> subprocess.Popen[str] | None:
        if self.maintainer == "nobody":
            return None
        command = [sys.executable, "-c", _OPTIMIZE, str(self.graph), str(self.small_table_bytes), str(self.share)]
        if self.maintainer == "engine":
            loop = 'echo ready; while true; do "$0" optimize --json "$1" >/dev/null 2>&1 && echo pass; done'
            command = ["bash", "-c", loop, self.oracle.binary, str(self.graph)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        log = self.graph.with_suffix(f".optimizer-{time.time_ns()}.log").open("w")
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        log.close()
        deadline = time.monotonic() + 900
        while "ready" not in Path(log.name).read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        return process

    def _stop(self, optimizer: subprocess.Popen[str] | None, outcome: Outcome) -> None:
        if optimizer is not None:
            optimizer.send_signal(signal.SIGTERM)
            optimizer.wait(timeout=900)
        for log in self._logs():
            lines = log.read_text().splitlines()
            outcome.passes += sum(line.startswith("pass") for line in lines)
            outcome.said += [line for line in lines if not line.startswith(("pass", "ready"))]

    def _passes(self) -> int:
        return sum(log.read_text().count("pass\n") for log in self._logs())

    def _logs(self) -> list[Path]:
        return sorted(self.graph.parent.glob(f"{self.graph.stem}.optimizer-*.log"))

    def _judge(self, models: dict[str, Model], outcome: Outcome) -> None:
        """After one `recover` and one open by the engine nothing is pending, drifted, forked or lost."""
        recover(open_graph(str(self.graph)), grace_seconds=0)
        done = self.oracle.run("optimize", "--json", str(self.graph), check=False)
        if done.returncode != 0:
            outcome.problems.append(f"the engine cannot open the graph: {first_error(done.stderr)}")
        graph = open_graph(str(self.graph))
        left = sidecar_names(graph.storage)
        status = check(graph).status
        if left or status is not CheckStatus.CLEAN:
            outcome.problems.append(f"{status.value}: {len(left)} sidecars stay")
            return
        outcome.commits = sum(
            OPERATION_PROPERTY in dict(version_record(graph.storage, entry.path, version).properties)
            for entry in graph.state().entries
            for version in range(1, entry.version + 1)
        )
        drifted = preview_repair(graph).drifted
        outcome.problems += [f"{r.table_key} drifted by {', '.join(r.operations)}" for r in drifted]
        for branch, model in models.items():
            outcome.problems += self._branch_problems(branch, model)

    def _branch_problems(self, branch: str, model: Model) -> list[str]:
        try:
            check_lineage(open_graph(str(self.graph)), None if branch == "main" else branch)
        except AssertionError as error:
            return [f"{branch}: {error}"]
        rows = self.oracle.run("export", "--store", str(self.graph), "--branch", branch, check=False)
        if rows.returncode != 0:
            return [f"{branch} cannot be exported: {first_error(rows.stderr)}"]
        found = {r["data"]["name"] for r in map(json.loads, rows.stdout.splitlines()) if r.get("type") == "Person"}
        return model.problems(found, branch)


def first_error(text: str) -> str:
    """The sentence of an error of the engine, without its colours and backtrace."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    found = re.search(r"0: (.*)", plain)
    return (found[1] if found else plain.strip().splitlines()[0] if plain.strip() else "no reason")[:300]


def fresh_graph(oracle: Engine, template: Path, graph: Path) -> None:
    """A graph of three loads at `graph`; made once at `template`. Graphs with branches record where they are."""
    if not template.exists():
        oracle.init(template)
        for load in range(3):
            oracle.load(template, people(load * 10, 10))
    if graph.exists():
        shutil.rmtree(graph)
    shutil.copytree(template, graph)
