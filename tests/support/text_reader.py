"""Search a dataset word by word with whatever pylance this interpreter finds first; run as a script."""

from __future__ import annotations

import json
import sys

import lance

request = json.load(sys.stdin)
dataset = lance.dataset(request["uri"], version=request["version"])
found: dict[str, list[str]] = {}
for word in request["words"]:
    query = {"columns": [request["column"]], "query": word}
    try:
        rows = dataset.to_table(full_text_query=query, columns=["id", "_score"])
        found[word] = sorted(rows.column("id").to_pylist())
    except Exception as error:
        found[word] = [f"error: {str(error).splitlines()[0]}"]
json.dump({"release": lance.__version__, "found": found}, sys.stdout)
