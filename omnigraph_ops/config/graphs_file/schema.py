"""The JSON Schema of a graphs file, for editors; `docs/reference/graphs.schema.json` is a copy."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from omnigraph_ops.config.graphs_file.kinds import NAME
from omnigraph_ops.config.graphs_file.model import Defaults, GraphEntry
from omnigraph_ops.config.graphs_file.reader import VERSION

_REF = "#/$defs/"


def json_schema() -> dict[str, Any]:
    """What an editor checks while somebody types; the reader checks more. Pure."""
    _, schema = models_json_schema([(Defaults, "validation"), (GraphEntry, "validation")])
    blocks = schema["$defs"]
    entry = blocks["GraphEntry"]
    # The name is the key.
    del entry["properties"]["name"]
    entry["required"] = ["target"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Graphs file of omnigraph-ops",
        "type": "object",
        "additionalProperties": False,
        "required": ["version", "graphs"],
        "properties": {
            "version": {"const": VERSION},
            "defaults": {"$ref": _REF + "Defaults"},
            "graphs": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": False,
                "patternProperties": {f"^{NAME}$": {"$ref": _REF + "GraphEntry"}},
            },
        },
        "$defs": blocks,
    }
