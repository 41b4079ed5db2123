"""The graphs of bench_optimize.py, each written by a process of its own: `python bench/shapes.py SHAPE FOLDER`.

Whoever measures the memory of other processes must itself be small.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import lance
import numpy as np
import pyarrow as pa

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import Graph, open_graph
from omnigraph_ops.graph.publish import publish, table_update


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A graph: its tables, and what each of its loads appends."""

    node_types: int
    loads: int
    rows: int
    """Of every table, per load."""
    body: int
    """Characters of a document."""
    more: Mapping[str, int] = field(default_factory=dict)
    """Rows of tables that have more."""


SHAPES = {
    # Most bytes of the graph are its text, as in life.
    "data": Shape(
        node_types=9,
        loads=10,
        rows=5_000,
        body=8_000,
        more={"node:Person": 20_000, "node:Doc": 10_000, "edge:Knows": 60_000},
    ),
    "indexes": Shape(node_types=4, loads=20, rows=8_000, body=200),
    "small": Shape(node_types=195, loads=6, rows=20, body=50),
}


def column(field: pa.Field, rows: int, load: int, draw: np.random.Generator, body: int) -> pa.Array:
    """Values of one column; ids never repeat, text does not compress. Pure but for the generator."""
    if field.name in {"id", "name", "slug"}:
        return pa.array([f"{field.name[0]}{load}-{n}" for n in range(rows)], field.type)
    if field.name == "body":
        text = draw.integers(33, 127, (rows, body), dtype=np.uint8)
        return pa.array([line.tobytes().decode() for line in text], field.type)
    if pa.types.is_string(field.type) and field.name == "tier":
        return pa.array(draw.choice(["free", "pro", "team"], rows), field.type)
    if pa.types.is_string(field.type):
        words = draw.integers(0, 20_000, (rows, 8))
        return pa.array([" ".join(f"w{w}" for w in line) for line in words], field.type)
    if pa.types.is_fixed_size_list(field.type):
        values = draw.random(rows * field.type.list_size, dtype=np.float32)
        return pa.FixedSizeListArray.from_arrays(pa.array(values), type=field.type)
    numbers = pa.array(draw.integers(0, 20_000, rows), pa.int32())
    if pa.types.is_date64(field.type):
        return pa.array([n * 86_400_000 for n in numbers.to_pylist()], field.type)
    return numbers.cast(field.type)


def load(graph: Graph, number: int, shape: Shape) -> None:
    """Append to every table and publish them together. Writes."""
    draw = np.random.default_rng(number)
    updates = []
    for entry in graph.state().entries:
        dataset = graph.open_head(entry)
        rows = shape.more.get(entry.table_key, shape.rows)
        arrays = [column(of, rows, number, draw, shape.body) for of in dataset.schema]
        lance.write_dataset(pa.Table.from_arrays(arrays, schema=dataset.schema), dataset, mode="append")
        updates.append(table_update(graph, entry, graph.open_head(entry)))
    publish(graph, tuple(updates), actor=None)


def main(name: str, folder: str) -> None:
    """Write the graph of that shape; print the paths of its tables."""
    shape = SHAPES[name]
    write_demo_graph(folder, DemoSpec(node_types=shape.node_types, loads=1, rows=min(shape.rows, 1000)))
    graph = open_graph(folder, Settings())
    for number in range(shape.loads):
        load(graph, number, shape)
    print(json.dumps([entry.path for entry in graph.state().entries]))


if __name__ == "__main__":
    main(*sys.argv[1:])
