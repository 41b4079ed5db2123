"""Vector indexes: their partitions, what queries find and read, and training them anew.

Lance aims at 4,096 rows in a partition of IVF_FLAT. Whatever folds an index without saying how many segments to merge,
as the engine does, splits a partition of more than four times that, and joins the smallest of several below a quarter
of it. Up to Lance 9.0 both fail on stable row ids once a row of that partition was deleted or updated. So the sizes
between the two are the ones that every engine can fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph_ops.lance.gateway import Dataset, LanceFailure, lance_errors
from omnigraph_ops.lance.tables import VECTOR_DETAILS, IndexFacts, fragment_facts, index_facts, segment_statistics
from omnigraph_ops.quantities import count
from omnigraph_ops.storage.scratch import native_scratch

TARGET_ROWS = 4096
"""Rows of a partition that Lance aims at."""
MOST_ROWS, FEWEST_ROWS = 4 * TARGET_ROWS, TARGET_ROWS // 4
"""Lance splits larger partitions and joins smaller ones."""
_COMFORTABLE = range(TARGET_ROWS // 2, 3 * TARGET_ROWS + 1)
"""What partitions are made to have, so that half of a partition may go and a third more may come."""
LEAST_RECALL = 0.95
UNREADABLE = "unreadable"
NEIGHBOURS = 10
_SAMPLE_PER_PARTITION, _SAMPLE_BYTES = 256, 256 * 1024 * 1024
_SURE = 0.9
"""Of the bounds, because a sample of so many tells the size of a partition to some per cent."""
_LARGEST = 1e36
"""Squared length of a vector; distances between larger ones overflow, here and in Lance."""
_ROUNDS = 12
"""Of dropping small centroids and splitting large ones, which nearly always ends sooner."""
_ITERATIONS = 10
_TRIES = 4
"""Vectors tried for each seed."""
_PRUNING = 7.0
"""Of Lance 7 and 9, for two to ten neighbours: partitions up to this many times the squared distance of the nearest.
For one it is 0.6, so one partition is read."""
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorFacts:
    """A vector index by name, from its metadata."""

    name: str
    column: str
    kind: str
    """As in `IVF_FLAT`, or `unreadable`."""
    metric: str
    segments: int
    sizes: tuple[int, ...]
    """Rows of every partition, over all segments; rows that were deleted since are counted."""
    uncovered_rows: int
    size_bytes: int

    @property
    def rows(self) -> int:
        """Rows in the index. Pure."""
        return sum(self.sizes)

    @property
    def wanted(self) -> int:
        """The number of partitions that Lance recommends. Pure."""
        return max(1, (self.rows + self.uncovered_rows) // TARGET_ROWS)

    @property
    def badness(self) -> int:
        """How bad its partitions are, see `badness_of`; 0 for what is never trained. Pure."""
        trained = self.kind == "IVF_FLAT" and self.metric == "l2" and self.sizes
        return badness_of(self.sizes, self.rows + self.uncovered_rows) if trained else 0

    @property
    def problem(self) -> str | None:
        """Why it is to be trained anew, None when its partitions are fine. Pure."""
        if not self.badness:
            return None
        of = f"{self.name} has {count(len(self.sizes), 'partition')} for {count(self.rows, 'row')}"
        if len(self.sizes) > 1 and min(self.sizes) < FEWEST_ROWS:
            return f"{of}, the smallest of {min(self.sizes):,}: Lance wants at least {FEWEST_ROWS:,}"
        if max(self.sizes) > MOST_ROWS:
            return f"{of}, the largest of {max(self.sizes):,}: Lance wants at most {MOST_ROWS:,}"
        return f"{of}, {self.wanted} are recommended"


def badness_of(sizes: Sequence[int], rows: int) -> int:
    """2: engines split or join partitions of these sizes, and may fail; 1: they are too few for the rows; 0. Pure."""
    if max(sizes) > MOST_ROWS or (len(sizes) > 1 and min(sizes) < FEWEST_ROWS):
        return 2
    return int(rows >= 2 * TARGET_ROWS and sum(sizes) > 2 * TARGET_ROWS * len(sizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What sampled queries found and read, against exact search."""

    queries: int
    recall: float
    """Of the ten nearest, at the probes of the engine's Lance; 1 is exact."""
    recall_at_1: float
    """Of the nearest vector beside the queried one, which a query for one neighbour looks for in one partition."""
    bytes_read: int
    """Per query, with cold caches."""
    partitions_read: float
    drift: float
    """Mean squared distance to the nearest centroid, against that of centroids trained now: 1 is as good as new."""


def vector_facts(dataset: Dataset) -> tuple[VectorFacts, ...]:
    """The vector indexes of the version that is open. Reads metadata of indexes."""
    found = [i for i in index_facts(dataset) if i.details == VECTOR_DETAILS and len(i.columns) == 1]
    rows = {f.fragment_id: f.live_rows for f in fragment_facts(dataset)} if found else {}
    return tuple(_facts(dataset, i, sum(n for f, n in rows.items() if f not in i.covered)) for i in found)


def _facts(dataset: Dataset, index: IndexFacts, uncovered_rows: int) -> VectorFacts:
    try:
        stats = segment_statistics(dataset, index.name)
    except LanceFailure:
        stats = []  # its files are gone, perhaps: a fold finds that out and builds it anew
    sizes = [[int(p["size"]) for p in segment.get("partitions", ())] for segment in stats]
    width = max(map(len, sizes), default=0)
    return VectorFacts(
        name=index.name,
        column=index.columns[0],
        kind=str(stats[0].get("index_type", "")) if stats else UNREADABLE,
        metric=str(stats[0].get("metric_type", "")) if stats else "",
        segments=index.segments,
        sizes=tuple(sum(s[n] for s in sizes if n < len(s)) for n in range(width)),
        uncovered_rows=uncovered_rows,
        size_bytes=index.size_bytes,
    )


def answers(reopen: Callable[[], Dataset], facts: VectorFacts, queries: int) -> Answers | None:
    """Recall and cost of queries with stored vectors; None when there is none, or no index to ask. Reads.

    The newer Lance of this process probes fewer partitions than that of the engine. So the rule of the engine's Lance
    says how many partitions are probed, and Lance is told that number.

    Args:
        reopen: opens the dataset with caches of its own. Every query has a fresh one, so all of them read from the
            store; Lance 13 can hang where the index cache has no room.
    """
    if not facts.sizes or facts.metric != "l2":
        return None
    dataset = reopen()
    segments = segment_statistics(dataset, facts.name)
    sample = _sampled(dataset, facts.column, max(queries, _SAMPLE_PER_PARTITION * len(facts.sizes)))
    if not len(sample):
        return None
    centroids = np.asarray(segments[0]["centroids"], dtype=np.float32)
    asked, found, first, read, probes = sample[:: max(1, len(sample) // queries)][:queries], 0.0, 0, 0, 0
    for query in asked:
        wanted = {"column": facts.column, "q": query, "k": NEIGHBOURS}
        probed = int(_probed(query[None], centroids).sum())
        probing = wanted | {"minimum_nprobes": probed, "maximum_nprobes": probed}
        near, bytes_read = _nearest(reopen(), probing)
        exact, _ = _nearest(dataset, wanted | {"use_index": False})
        if not near.keys() <= exact.keys():
            near, _ = _nearest(dataset, probing | {"refine_factor": 1})  # their true distances
        found, read, probes = found + _share_found(near, exact), read + bytes_read, probes + probed
        first += _finds_nearest(reopen(), wanted, exact)
    fresh = _trained(sample, len(centroids))
    return Answers(
        queries=len(asked),
        recall=round(found / len(asked), 4),
        recall_at_1=round(first / len(asked), 4),
        bytes_read=read // len(asked),
        partitions_read=round(probes / len(asked), 2),
        drift=round(_spread(sample, centroids) / max(_spread(sample, fresh), 1e-12), 3),
    )


def _share_found(near: Mapping[int, float], exact: Mapping[int, float]) -> float:
    """The share of the exact neighbours that were found; of equally distant rows any is as good. Pure."""
    bound = max(exact.values(), default=0.0) * (1 + 1e-6)
    hits = sum(row in exact or distance <= bound for row, distance in near.items())
    return min(hits, len(exact)) / max(1, len(exact))


def _finds_nearest(dataset: Dataset, wanted: dict[str, object], exact: Mapping[int, float]) -> bool:
    """Whether one partition has the nearest vector beside the queried one, which is a row itself. Reads."""
    found, _ = _nearest(dataset, wanted | {"k": 2, "minimum_nprobes": 1, "maximum_nprobes": 1, "refine_factor": 1})
    return _share_found(found, dict(sorted(exact.items(), key=lambda row: row[1])[:2])) == 1


def _nearest(dataset: Dataset, query: dict[str, object]) -> tuple[dict[int, float], int]:
    """The rows by id, each with its distance, and the bytes that were read. Reads."""
    seen: list[Any] = []
    with lance_errors(f"search {query['column']} of {dataset.uri}"):
        scanner: Any = dataset.scanner(
            columns=["_distance"], nearest=query, with_row_id=True, scan_stats_callback=seen.append
        )
        rows = scanner.to_table()
    pairs = zip(rows.column("_rowid").to_pylist(), rows.column("_distance").to_pylist(), strict=True)
    return dict(pairs), sum(int(s.bytes_read) for s in seen)


def _sampled(dataset: Dataset, column: str, rows: int) -> Vectors:
    with lance_errors(f"sample column {column} of {dataset.uri}"):
        total = int(dataset.count_rows())
        path = _path(dataset.schema, column)
        width = int(getattr(_field(dataset.schema, path).type, "list_size", 0) or 1)
        wanted = min(total, rows, max(1, _SAMPLE_BYTES // (4 * width)))
        if not wanted:
            return np.empty((0, width), dtype=np.float32)
        # Every n-th row could be of one kind; the seed gives the same table the same sample.
        rows_taken = np.sort(np.random.default_rng(0).choice(total, size=wanted, replace=False))
        taken = dataset.take(rows_taken.tolist(), columns={"vector": ".".join(f"`{name}`" for name in path)}).column(0)
    values = taken.combine_chunks().drop_null()
    found: Vectors = values.flatten().to_numpy(zero_copy_only=False).astype(np.float32).reshape(-1, width)
    fit: Vectors = found[np.square(found, dtype=np.float64).sum(axis=1) < _LARGEST]
    return fit


def _path(schema: pa.Schema, column: str) -> tuple[str, ...]:
    """The fields down to the column of an index, one where it is in no struct. Pure."""
    return (column,) if column in schema.names else tuple(column.split("."))


def _field(schema: pa.Schema, path: tuple[str, ...]) -> pa.Field:
    found = schema.field(path[0])
    for name in path[1:]:
        found = found.type.field(name)
    return found


def _distances(vectors: Vectors, centroids: Vectors) -> Iterator[Vectors]:
    """Squared distances, some thousand vectors at a time. Pure."""
    squares = (centroids**2).sum(axis=1)
    for start in range(0, len(vectors), 4096):
        part = vectors[start : start + 4096]
        yield np.maximum((part**2).sum(axis=1)[:, None] + squares - 2 * (part @ centroids.T), 0)


def _spread(vectors: Vectors, centroids: Vectors) -> float:
    return float(np.concatenate([d.min(axis=1) for d in _distances(vectors, centroids)]).mean())


def _homes(vectors: Vectors, centroids: Vectors) -> npt.NDArray[np.intp]:
    return np.concatenate([d.argmin(axis=1) for d in _distances(vectors, centroids)])


def _probed(vectors: Vectors, centroids: Vectors) -> npt.NDArray[np.bool_]:
    """The partitions that the engine's Lance looks into, for each vector. Pure."""
    distances = np.concatenate(list(_distances(vectors, centroids)))
    return np.asarray(distances <= distances.min(axis=1, keepdims=True) * _PRUNING, dtype=np.bool_)


def _trained(vectors: Vectors, partitions: int) -> Vectors:
    """Centroids by Lloyd's algorithm. That of Lance starts at random vectors whatever it is given. Pure."""
    found = _seeds(vectors[:: max(1, len(vectors) // (8 * partitions))].copy(), min(partitions, len(vectors)))
    for _ in range(_ITERATIONS):
        homes = _homes(vectors, found)
        order, counts = np.argsort(homes, kind="stable"), np.bincount(homes, minlength=len(found))
        there = counts > 0
        starts = (np.cumsum(counts) - counts)[there]
        found[there] = np.add.reduceat(vectors[order], starts, axis=0) / counts[there][:, None]
    return found


def _seeds(vectors: Vectors, number: int) -> Vectors:
    """Vectors far from each other (k-means++): random ones put two centroids into one cluster and none into another."""
    draw, chosen = np.random.default_rng(0), vectors[:1]
    nearest = np.concatenate(list(_distances(vectors, chosen)))[:, 0].astype(np.float64)
    while len(chosen) < number and nearest.sum() > 0:  # at zero all others are copies of those that are chosen
        tried = vectors[draw.choice(len(vectors), size=_TRIES, p=nearest / nearest.sum())]
        left = np.minimum(nearest[:, None], np.concatenate(list(_distances(vectors, tried))))
        best = int(left.sum(axis=0).argmin())
        nearest, chosen = left[:, best], np.concatenate([chosen, tried[best][None]])
    return chosen


def centroids_for(dataset: Dataset, facts: VectorFacts) -> Vectors | None:
    """Centroids whose partitions every engine can fold, trained on a sample. Reads.

    One centroid where there are too few rows for two partitions. None when the vectors allow no better partitions than
    there are: they would be the same every night.
    """
    rows = facts.rows + facts.uncovered_rows
    sample = _sampled(dataset, facts.column, _SAMPLE_PER_PARTITION * facts.wanted)
    if not len(sample):
        return None
    found = sample.mean(axis=0, keepdims=True) if facts.wanted == 1 else _trained(sample, facts.wanted)
    for _ in range(_ROUNDS):
        sizes = np.bincount(_homes(sample, found), minlength=len(found)) * rows // len(sample)
        if len(found) > 1 and sizes.min() < _COMFORTABLE.start:
            found = np.delete(found, _superfluous(found, sizes), axis=0)
        elif sizes.max() >= _COMFORTABLE.stop:
            found = _split(sample, found, sizes)
        else:
            break
    sizes = np.bincount(_homes(sample, found), minlength=len(found)) * rows // len(sample)
    sure = sizes.max() < _SURE * MOST_ROWS and (len(found) == 1 or sizes.min() > FEWEST_ROWS / _SURE)
    better = badness_of(sizes.tolist(), rows) < facts.badness
    return found if sure and better and _recall(sample, found) >= LEAST_RECALL else None


def _superfluous(centroids: Vectors, sizes: npt.NDArray[np.intp]) -> list[int]:
    """Centroids with too few rows. Pure.

    Never one together with its neighbour: the rows go there, and a cluster that loses all its centroids at once would
    go to another cluster.
    """
    apart = np.concatenate(list(_distances(centroids, centroids)))
    np.fill_diagonal(apart, np.inf)
    dropped, kept = list[int](), set[int]()
    for number in map(int, np.argsort(sizes)):
        if sizes[number] >= _COMFORTABLE.start:
            break
        neighbour = int(apart[number].argmin())
        if number not in kept and neighbour not in dropped:
            dropped.append(number)
            kept.add(neighbour)
    return dropped


def _split(sample: Vectors, centroids: Vectors, sizes: npt.NDArray[np.intp]) -> Vectors:
    """The centroids, those of too large partitions replaced by several. Pure."""
    homes, parts = _homes(sample, centroids), []
    for number, size in enumerate(sizes):
        inside = sample[homes == number]
        parts.append(
            _trained(inside, -(-int(size) // (2 * TARGET_ROWS)))
            if size >= _COMFORTABLE.stop
            else centroids[number][None]
        )
    return np.concatenate(parts)


def _recall(sample: Vectors, centroids: Vectors) -> float:
    """Recall of some of the sample within the sample: of ten neighbours, how many lie in a probed partition. Pure."""
    homes, asked = _homes(sample, centroids), sample[:: max(1, len(sample) // 100)]
    probed, found = _probed(asked, centroids), []
    for row, distances in zip(probed, np.concatenate(list(_distances(asked, sample))), strict=True):
        found.append(row[homes[np.argsort(distances)[:NEIGHBOURS]]].mean())
    return float(np.mean(found))


def retrain(dataset: Dataset, name: str) -> bool:
    """Build a vector index anew with partitions that every engine can fold; at most a few commits. Writes.

    Returns:
        Whether it was built; False, and nothing is written, when its vectors allow no such partitions, as with copies
        of one vector, or when queries for ten would find less.
    """
    facts = facts_of(dataset, name)
    centroids = centroids_for(dataset, facts)
    if centroids is None:
        return False
    _build(dataset, facts, centroids)
    refine(dataset, name, centroids)
    return True


def facts_of(dataset: Dataset, name: str) -> VectorFacts:
    """A vector index that is there. Reads."""
    (found,) = [facts for facts in vector_facts(dataset) if facts.name == name]
    return found


def refine(dataset: Dataset, name: str, centroids: Vectors) -> None:
    """Build an index that has these centroids once more where they are unfit; at most one commit. Writes.

    The sample told the sizes nearly; what it got wrong goes to the next centroid.
    """
    built = facts_of(dataset, name)
    sizes = np.asarray(built.sizes)
    if len(sizes) > 1 and sizes.min() < FEWEST_ROWS:
        kept = centroids[sizes >= FEWEST_ROWS]
        _build(dataset, built, kept if len(kept) else centroids.mean(axis=0, keepdims=True))


def centre_of(dataset: Dataset, column: str) -> Vectors | None:
    """The centroid of a vector index with one partition, as the engine makes it; None without vectors. Reads."""
    sample = _sampled(dataset, column, _SAMPLE_PER_PARTITION)
    return sample.mean(axis=0, keepdims=True) if len(sample) else None


def with_centroids(metric: str, centroids: Vectors) -> dict[str, Any]:
    """How Lance is told to make a vector index with these centroids. Pure."""
    values = pa.FixedSizeListArray.from_arrays(pa.array(centroids.ravel()), centroids.shape[1])
    return {"metric": metric, "num_partitions": len(centroids), "ivf_centroids": values}


def _build(dataset: Any, facts: VectorFacts, centroids: Vectors) -> None:
    with native_scratch(), lance_errors(f"train index {facts.name} of {dataset.uri}"):
        trained = with_centroids(facts.metric, centroids)
        dataset.create_index(facts.column, "IVF_FLAT", name=facts.name, replace=True, **trained)
