"""Freezes and holds for people: ages, lists and file tables. Pure but for the clock where it says so."""

from __future__ import annotations

import csv
import io

from omnigraph_ops.durations import moment
from omnigraph_ops.models.freeze import CutFiles, Freeze, HoldList, HoldState, ListedHold, UnfreezeReport
from omnigraph_ops.sizes import human_bytes

_MICROS = 1_000_000
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60))
_COLUMNS = ("file", "normalized", "size", "kind", "records_root", "checksum")


def age_text(seconds: float) -> str:
    """A time span in its largest unit, rounded down. Pure."""
    whole = max(int(seconds), 0)
    unit, size = next(((u, s) for u, s in _UNITS if whole >= s), ("s", 1))
    return f"{whole // size} {unit}"


def at(seconds: float) -> str:
    """A moment from seconds since the epoch. Pure."""
    return moment(int(seconds * _MICROS))


def freeze_text(freeze: Freeze) -> str:
    """What was frozen, by which cut, and how to go on. Pure."""
    cut = freeze.cut
    what = ", ".join(freeze.tables) if freeze.tables else f"{len(cut.datasets)} datasets"
    lines = [f"freeze {freeze.uri} — {what} until {at(freeze.expires_at)}", f"  id {freeze.freeze_id}"]
    lines += [f"  {branch.branch or 'main'} at graph version {branch.manifest_version}" for branch in cut.branches]
    if not cut.one_instant and cut.branches:
        lines.append("  each branch is exact, but writers were too busy to see all of them at one instant")
    lines.append(f"  {len(cut.pins)} versions tagged; `omnigraph-ops files {freeze.uri} --freeze {freeze.freeze_id}`")
    return "\n".join(lines)


def unfreeze_text(report: UnfreezeReport) -> str:
    """What was ended. Pure."""
    ended = ", ".join(report.released) or "nothing"
    return f"released {ended} of {report.uri}, {report.tags_removed} tags removed"


def holds_text(listed: HoldList) -> str:
    """A line per hold, and what is gone of a cut. Pure."""
    lines = [f"holds {listed.uri} — {len(listed.holds)}"]
    lines += [f"  ended and removed: {freeze_id}" for freeze_id in listed.swept]
    for hold in listed.holds:
        lines.append(_hold_line(hold))
        lines += [f"    gone: {p.path} {p.branch or 'main'} version {p.version}: {p.reason}" for p in hold.problems]
    return "\n".join(lines)


def files_text(listed: CutFiles) -> str:
    """The file list for a terminal. Pure."""
    lines = [f"files {listed.uri} — {len(listed.files):,} files, {human_bytes(listed.total_bytes)}"]
    for file in listed.files:
        more = f"  {file.checksum}" if file.checksum else ""
        lines.append(f"  {file.file}  {file.normalized}  {file.size}{'  (records the root)' * file.records_root}{more}")
    return "\n".join(lines)


def files_csv(listed: CutFiles) -> str:
    """The file list with a header. Pure."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for f in listed.files:
        writer.writerow((f.file, f.normalized, f.size, f.kind, str(f.records_root).lower(), f.checksum or ""))
    return out.getvalue().rstrip("\n")


def _hold_line(hold: ListedHold) -> str:
    if hold.state is HoldState.UNKNOWN:
        return f"  {hold.hold_id}  {hold.kind}  {hold.what}: {hold.reason}"
    age = age_text(hold.age_seconds or 0)
    state = " (starting)" if hold.state is HoldState.STARTING else ""
    why = f": {hold.reason}" if hold.reason else ""
    until = at(hold.expires_at or 0)
    return f"  {hold.hold_id}  {hold.kind}{state}  {hold.what}, by {hold.owner} since {age}, until {until}{why}"
