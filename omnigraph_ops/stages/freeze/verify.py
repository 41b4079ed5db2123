"""What of a cut is gone: branches that an engine deleted in spite of the tags, versions, tags."""

from __future__ import annotations

from omnigraph_ops.coordination.freeze_names import contract_folder
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.lance.errors import DatasetMissing
from omnigraph_ops.models.freeze import CutProblem, Freeze, FrozenPin
from omnigraph_ops.parallel import in_parallel
from omnigraph_ops.stages.freeze.observe import stored_manifest

_NO_BRANCH = "its branch was deleted, which takes the files of the branch in spite of tags"
_OTHER_BRANCH = "its branch was deleted and another one of that name was made"


def verify_cut(graph: Graph, freeze: Freeze) -> tuple[CutProblem, ...]:
    """Everything of the cut that is gone, by dataset; empty while all of it is there. Reads.

    Looks at branches, tags and manifests; that every file is there, `cut_files` says.
    """
    found = in_parallel(
        lambda path: _of_dataset(graph, [p for p in freeze.cut.pins if p.path == path]),
        freeze.cut.datasets,
        workers=graph.settings.concurrency,
    )
    folder = contract_folder(freeze.freeze_id)
    kept = set(graph.storage.list(folder))
    lost = [_problem_of_root(name) for name in freeze.cut.contract if name not in kept]
    return (*(problem for problems in found for problem in problems), *lost)


def _of_dataset(graph: Graph, pins: list[FrozenPin]) -> list[CutProblem]:
    try:
        dataset = graph.lance.open(graph.context.location.uri(pins[0].path))
    except DatasetMissing:
        return [_problem(pin, "its dataset is gone") for pin in pins]
    branches = {ref.name: ref.identifier for ref in graph.lance.branches(dataset)}
    tags = {name: (branch, version) for name, branch, version in graph.lance.tags(dataset)}
    found = []
    for pin in pins:
        reason = _branch_reason(pin, branches)
        if reason is None and tags.get(pin.tag) != (pin.branch, pin.version):
            reason = "its tag is gone"
        if reason is None and stored_manifest(graph, pin.path, pin.branch, pin.version) is None:
            reason = "the version was removed"
        found += [_problem(pin, reason)] if reason is not None else []
    return found


def _branch_reason(pin: FrozenPin, branches: dict[str, tuple[tuple[int, str], ...]]) -> str | None:
    if pin.branch is None:
        return None
    if pin.branch not in branches:
        return _NO_BRANCH
    return None if branches[pin.branch] == pin.lifetime else _OTHER_BRANCH


def _problem(pin: FrozenPin, reason: str) -> CutProblem:
    return CutProblem(path=pin.path, branch=pin.branch, version=pin.version, reason=reason)


def _problem_of_root(name: str) -> CutProblem:
    return CutProblem(path=name, branch=None, version=0, reason="the copy that the freeze kept of it is gone")
