"""Claim: training a vector index never makes a query of the engine find less or read more than a few per cent more, and
where vectors lie in clusters that are far apart, a query reads less than a tenth.

65,536 vectors of 64 dimensions, drawn in four ways. Printed, before and after: partitions, recall@10, bytes that a
query reads with cold caches at the probes of the engine's Lance (7 and 9), and the ratio of the bytes; and the seconds
of the training against those of the engine's build. All ratios are taken within one run.

    make bench
"""

from __future__ import annotations

import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph_ops.lance.vector_indexes import Answers, answers, retrain, vector_facts

ROWS, DIMENSION, QUERIES = 65_536, 64, 40


def drawn() -> dict[str, npt.NDArray[np.float32]]:
    """Vectors by the name of how they lie."""
    draw = np.random.default_rng(1)
    noise = draw.normal(size=(ROWS, DIMENSION))
    centres = draw.normal(size=(40, DIMENSION))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    topics = centres[draw.integers(0, 40, ROWS)] + 0.08 * noise
    found = {
        "no clusters": noise,
        "topics on a sphere": topics / np.linalg.norm(topics, axis=1, keepdims=True),
        "16 clusters, apart": draw.normal(size=(16, DIMENSION))[draw.integers(0, 16, ROWS)] + 0.05 * noise,
        "200 clusters, apart": draw.normal(size=(200, DIMENSION))[draw.integers(0, 200, ROWS)] + 0.05 * noise,
    }
    return {name: vectors.astype(np.float32) for name, vectors in found.items()}


def asked(path: str) -> Answers:
    """What queries find and read. Reads."""
    (facts,) = vector_facts(lance.dataset(path))
    found = answers(partial(lance.dataset, path), facts, QUERIES)
    assert found is not None
    return found


def main() -> None:
    """Print one row per way that vectors lie."""
    root = Path(tempfile.mkdtemp(prefix="bench-vectors-"))
    names = ("vectors", "partitions", "recall@10 before", "after", "recall@1 before", "after")
    print(f"| {' | '.join((*names, 'bytes before', 'after', 'ratio', 'training / build'))} |")
    print("|---" * (len(names) + 4) + "|")
    try:
        for name, vectors in drawn().items():
            path = str(root / name.replace(" ", "-"))
            column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION)
            dataset = lance.write_dataset(pa.table({"v": column}), path, enable_stable_row_ids=True)
            started = time.perf_counter()
            dataset.create_index("v", "IVF_FLAT", name="v", metric="L2", num_partitions=1)
            built = time.perf_counter() - started
            before = asked(path)
            started = time.perf_counter()
            assert retrain(dataset, "v")
            trained = time.perf_counter() - started
            (facts,) = vector_facts(dataset)
            after = asked(path)
            print(
                f"| {name} | {len(facts.sizes)} | {before.recall:.3f} | {after.recall:.3f} "
                f"| {before.recall_at_1:.3f} | {after.recall_at_1:.3f} | {before.bytes_read:,} "
                f"| {after.bytes_read:,} | {after.bytes_read / before.bytes_read:.3f} | {trained / built:.1f} |"
            )
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
