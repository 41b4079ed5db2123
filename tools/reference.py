"""Make the generated parts of the documentation from the code.

    .venv/bin/python -m tools.reference            # writes the pages anew
    .venv/bin/python -m tools.reference --check    # names the pages that are not current; exit code 1

Each page below `docs/reference/` keeps its own text; only what stands between its two markers is replaced.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import yaml
from omnigraph_airflow.stage_dag import stage_text

from omnigraph_ops.cli import parsing  # noqa: F401 - declares them
from omnigraph_ops.cli.call import cli
from omnigraph_ops.config.graph_entries import variable_of
from omnigraph_ops.config.graphs_file import json_schema
from omnigraph_ops.config.settings import settings_report
from omnigraph_ops.stages.registry import BY_NAME
from tools.meanings import FIELDS, KEYS, METRICS
from tools.source import Field, Kind, classes, dictionary_keys

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs/reference"
SCHEMA = PAGES / "graphs.schema.json"
BEGIN, END = "<!-- made by `make docs`: begin -->", "<!-- made by `make docs`: end -->"

OUTPUTS: dict[str, tuple[tuple[str, str], ...]] = {
    "check": (("", "CheckReport"),),
    "recover": (("", "RecoverReport"),),
    "health": (("", "HealthReport"),),
    "plan": (("", "OptimizePlan"),),
    "optimize": (("", "OptimizeReport"), ("with `--queue`", "QueuedRun")),
    "repair": (("", "RepairReport"),),
    "cleanup": (("preview", "CleanupPlan"), ("with `--confirm`", "CleanupReport")),
    "expire-rows": (("preview", "RowRetentionPlan"), ("with `--confirm`", "RowRetentionReport")),
    "orphans": (
        ("preview", "OrphansPlan"),
        ("with `--confirm`", "OrphansReport"),
        ("with `--quarantined`", "QuarantineList"),
        ("with `--restore` or `--purge`", "QuarantineReport"),
    ),
    "history": (("", "HistoryList"), ("with `--run`", "RunRecord"), ("with `--table`", "TableTrend")),
    "audit": (("", "AuditLog"),),
    "freeze": (("", "Freeze"),),
    "unfreeze": (("", "UnfreezeReport"),),
    "files": (("", "CutFiles"),),
    "holds": (("", "HoldList"),),
    "hold": (("", "Hold"),),
    "release": (("", "UnfreezeReport"),),
    "backup": (("", "BackupReport"),),
    "verify": (("", "VerifyReport"),),
    "restore": (("", "RestoreReport"),),
    "backups": (("", "BackupList"),),
    "unlock": (("", "UnlockReport"),),
    "calibrate": (("", "Calibration"),),
    "graphs": (("", "GraphList"),),
    "settings": (("", "SettingsReport"),),
    "install-text-indexer": (("", "TextIndexers"),),
    "demo-graph": (("", "DemoSummary"),),
}
"""What each verb prints with `--json`: when, and as which class."""


def settings_table() -> str:
    """Return a row for each variable of the environment: default and meaning."""
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for setting in settings_report({}).settings:
        meaning = re.sub(r"docs/((?:[\w-]+/)+([\w-]+)\.md)", r"[\2](../\1)", setting.meaning)
        lines.append(f"| `{setting.variable}` | {setting.default} | {meaning} |")
    return "\n".join(lines)


def graphs_tables() -> str:
    """Return a table for each block of a graphs file, from its JSON Schema."""
    blocks = json_schema()["$defs"]
    entry = blocks.pop("GraphEntry")
    del blocks["Defaults"]
    tables = ["## Keys of a graph\n", _keys(entry)]
    for schema_name, schema in blocks["SettingsOverrides"]["properties"].items():
        schema["description"] = f"Instead of `{variable_of(schema_name)}`."
    for name, block in blocks.items():
        if block.get("properties"):
            tables.append(f"\n## {name}\n\n{_sentence(block)}\n")
            tables.append(_keys(block))
    return "\n".join(tables)


def _keys(block: dict[str, Any]) -> str:
    needed = set(block.get("required", ()))
    lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key, schema in sorted(block["properties"].items(), key=lambda item: item[0] not in needed):
        default = "required" if key in needed else f"`{json.dumps(_said(schema.get('default')))}`"
        meaning = _sentence(schema) or KEYS.get(key, "")
        lines.append(f"| `{key}` | {_value(schema)} | {default} | {meaning} |")
    return "\n".join(lines)


def _said(default: Any) -> Any:
    """Return the default of a key without the parts that say nothing."""
    if isinstance(default, dict):
        return {key: value for key, value in default.items() if value not in (None, False, [])}
    return default


def _value(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return _linked(schema["$ref"].rpartition("/")[2])
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(_value(option) for option in options))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_value(schema['items'])}"
    kind = schema.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _linked(name: str) -> str:
    values = json_schema()["$defs"][name].get("enum")
    return ", ".join(f"`{value}`" for value in values) if values else f"[{name}](#{name.lower()})"


def _sentence(schema: dict[str, Any]) -> str:
    return _cell(schema.get("description", "").replace("docs/reference/", ""))


def output_tables() -> str:
    """Return what every verb prints with `--json`, then each class that occurs in it."""
    known = classes(ROOT / "omnigraph_ops")
    lines = ["| verb | prints |", "|---|---|"]
    for verb, forms in OUTPUTS.items():
        shown = ", ".join(f"{when} [{name}](#{name.lower()})".strip() for when, name in forms)
        lines.append(f"| `{verb}` | {shown} |")
    tables = ["\n".join(lines)]
    for name in _reached(known):
        tables.append(f"## {name}\n\n{_cell(known[name].doc)}\n\n{_fields(known[name], known)}")
    return "\n\n".join(tables)


def _reached(known: dict[str, Kind]) -> list[str]:
    """Return every class that some output holds, in the order in which a reader meets them."""
    waiting = [name for forms in OUTPUTS.values() for _, name in forms]
    found: dict[str, None] = {}
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found[name] = None
            waiting[:0] = [part for field in known[name].fields for part in _names(field) if part in known]
    return list(found)


def _names(field: Field) -> list[str]:
    return re.findall(r"[A-Z]\w+", field.type)


def _fields(kind: Kind, known: dict[str, Kind]) -> str:
    meanings = {field.name: _cell(_meaning(kind, field, known)) for field in kind.fields}
    if kind.is_enum:
        rows = [f"| `{name}` | {meaning} |" for name, meaning in meanings.items()]
        return "\n".join(["| value | meaning |", "|---|---|", *rows])
    rows = [f"| `{f.name}` | {_type(f.type, known)} | {meanings[f.name]} |" for f in kind.fields]
    return "\n".join(["| field | type | meaning |", "|---|---|---|", *rows])


def _meaning(kind: Kind, field: Field, known: dict[str, Kind]) -> str:
    """Return the text under a field, else what its class is, else what such fields mean everywhere."""
    if own := field.doc or FIELDS.get(f"{kind.name}.{field.name}"):
        return own
    parts = [known[name].doc for name in _names(field) if name in known]
    return parts[0].partition("\n\n")[0] if parts else FIELDS.get(field.name, "")


def _type(text: str, known: dict[str, Kind]) -> str:
    """Return an annotation as JSON has it: a tuple is a list, None is null."""
    text = re.sub(r"tuple\[(\w+), (\w+)\]", r"pair of \1 and \2", text)
    text = re.sub(r"tuple\[([^\[\]]+), \.\.\.\]", r"list of \1", text)
    text = re.sub(r"(?:dict|Mapping)\[str, ([^\[\]]+)\]", r"object of \1", text)
    words = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null", "|": "or"}
    text = re.sub(r"\b(?:str|int|float|bool|None)\b|\|", lambda found: words[found[0]], text)
    return re.sub(r"[A-Z]\w+", lambda f: f"[{f[0]}](#{f[0].lower()})" if f[0] in known else f[0], text)


def _cell(text: str) -> str:
    return re.sub(r"\bNone\b", "null", " ".join(text.split())).replace("|", "\\|").replace("<", "&lt;")


def metrics_tables() -> str:
    """Return the gauges and the counters of a run; raise `ValueError` where one has no meaning here."""
    source = ROOT / "plugins/omnigraph_airflow/notify.py"
    outcomes = [field.name for field in classes(ROOT / "omnigraph_ops")["RunOutcome"].fields]
    gauges = dictionary_keys(source, "gauges")
    counters = [
        name.replace("{}", outcome)
        for name in dictionary_keys(source, "counters")
        for outcome in (outcomes if "{}" in name else [""])
    ]
    if unexplained := set(METRICS) ^ {*gauges, *counters}:
        raise ValueError(f"METRICS of tools/reference.py and metrics.py differ in {sorted(unexplained)}")
    parts = []
    for kind, names in (("gauge", gauges), ("counter", counters)):
        rows = [f"| `{name}` | {METRICS[name]} |" for name in names]
        parts.append("\n".join([f"| {kind} | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def conformance_tables() -> str:
    """Return the ledger: how many items there are of each state, then every item with its tests."""
    engines = yaml.safe_load((ROOT / "tests/docs/conformance.yaml").read_text("utf-8"))
    states = Counter(item["state"] for engine in engines for part in engine["sections"] for item in part["items"])
    parts = [
        f"{states.total()} items: {states['covered']} covered, {states['partly']} covered in part, "
        f"{states['not applicable']} not applicable, {states['not covered']} not covered."
    ]
    for engine in engines:
        parts.append(f"## {engine['engine']}")
        for section in engine["sections"]:
            rows = [_item(item) for item in section["items"]]
            head = ["| id | behaviour | state | tests | note |", "|---|---|---|---|---|"]
            parts += [f"### {section['title']}", "\n".join([*head, *rows])]
    return "\n\n".join(parts)


def _item(item: dict[str, Any]) -> str:
    tests = "<br>".join(f"`{test}`" for test in item.get("tests", ()))
    cells = (item["id"], item["behaviour"], item["state"], tests, item.get("note", ""))
    return "| " + " | ".join(cells) + " |"


def dag_texts() -> str:
    """Return the text of every DAG as the UI shows it, under the id of the DAG."""
    files = (path for path in (ROOT / "dags").glob("omnigraph_*.py") if path.stem != "omnigraph_stages")
    texts = {path.stem: ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "" for path in files}
    texts |= {stage.dag_id: stage_text(stage) for stage in BY_NAME.values()}
    parts = []
    for dag_id, shown in sorted(texts.items()):
        title, _, text = shown.partition("\n")
        parts.append(f"## {dag_id}\n\n{title.removeprefix('# ')}.\n\n{text.strip()}")
    return "\n\n".join(parts)


def verb_texts() -> str:
    """Return every verb with its summary, its arguments and all of its options."""
    parts = []
    for name, command in cli.commands.items():
        usage = " ".join(
            p.make_metavar(click.Context(command)) for p in command.params if isinstance(p, click.Argument)
        )
        options = [p for p in command.params if isinstance(p, click.Option) and not (p.hidden or _is_shared(p))]
        rows = [f"| {_option(option)} | {_cell(option.help or '')} |" for option in options]
        head = f"### {name}\n\n```\nomnigraph-ops {name} {usage}".rstrip() + "\n```"
        summary = inspect.cleandoc(command.help or "").replace("\b\n", "")
        table = ["\n".join(["| option | meaning |", "|---|---|", *rows])] if rows else []
        _, *examples = (command.epilog or "").split("\n\n")
        shown = "\n".join(["Examples:", "", "```", *examples, "```"])
        parts.append("\n\n".join([head, summary, *table, shown]))
    return "\n\n".join(parts)


def _is_shared(option: click.Option) -> bool:
    """Whether the page explains an option once for all verbs."""
    return getattr(option, "panel", None) in {"Graph", "Output"}


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    value = option.metavar or ("" if option.is_flag else option.make_metavar(click.Context(click.Command(""))))
    return f"{names} {_cell(value)}".rstrip()


GENERATED: dict[str, Callable[[], str]] = {
    "settings.md": settings_table,
    "verbs.md": verb_texts,
    "dags.md": dag_texts,
    "graphs-file.md": graphs_tables,
    "json.md": output_tables,
    "metrics.md": metrics_tables,
    "conformance.md": conformance_tables,
}


def replaced(page: str, part: str) -> str:
    """Return the page with what stands between its markers replaced; raise `ValueError` where a marker is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"a generated page needs the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{after}"


def made() -> Iterator[tuple[Path, str]]:
    """Yield every generated file with the text that it should have. Reads the pages and the sources."""
    for name, make in GENERATED.items():
        yield PAGES / name, replaced((PAGES / name).read_text("utf-8"), make())
    yield SCHEMA, json.dumps(json_schema(), indent=2) + "\n"


def main(arguments: list[str]) -> int:
    """Write what is not current, or with `--check` only name it. Returns the exit code."""
    stale = [(path, text) for path, text in made() if path.read_text("utf-8") != text]
    if "--check" in arguments:
        sys.stderr.writelines(f"{path.relative_to(ROOT)} is not current: run make docs\n" for path, _ in stale)
        return 1 if stale else 0
    for path, text in stale:
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
