"""The reference of the settings, made from `Settings` itself: what each is called, what it is by default, what it does.

`python -m omnigraph_ops.config.reference docs/settings.md` writes the table between the file's markers anew.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omnigraph_ops.config.settings import PREFIX, Settings, variable_of
from omnigraph_ops.sizes import human_bytes
from omnigraph_ops.suggest import did_you_mean
from omnigraph_ops.views.view import Section, View, filled

BEGIN, END = "<!-- made by `make docs`: begin -->", "<!-- made by `make docs`: end -->"
_OF_THE_SHELL = ("OMNIGRAPH_OPS_AIRFLOW_URL", "OMNIGRAPH_OPS_AIRFLOW_TOKEN", "OMNIGRAPH_OPS_TRACEBACK")
"""Variables that only the shell reads; no run depends on them."""
_PAGE = re.compile(r"docs/(\w[\w-]*\.md)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting that a deployment can make."""

    name: str
    variable: str
    default: str
    meaning: str
    value: str
    """What it is in the environment that was asked about."""
    is_set: bool
    """Whether that environment says so, rather than the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsReport:
    """All settings, in the order of the reference."""

    settings: tuple[Setting, ...]


def settings_report(environment: Mapping[str, str] | None = None) -> SettingsReport:
    """Every setting as the environment makes it; raises `InvalidInput` as `Settings.from_env` does. Reads."""
    env = os.environ if environment is None else environment
    found, base = Settings.from_env(env), Settings()
    rows = []
    for name, variable, meaning in _described():
        default, value = _text(name, getattr(base, name)), _text(name, getattr(found, name))
        is_set = bool(env.get(variable, "").strip())
        rows.append(Setting(name=name, variable=variable, default=default, meaning=meaning, value=value, is_set=is_set))
    return SettingsReport(settings=tuple(rows))


def misspelled_settings(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """A sentence for each variable that looks like a setting and is none. Reads."""
    env = os.environ if environment is None else environment
    known = {variable for _, variable, _ in _described()} | {*_OF_THE_SHELL}
    return tuple(
        f"{name} is no setting and changes nothing{did_you_mean(name, known, prefix=PREFIX)}"
        for name in sorted(env)
        if name.startswith(PREFIX) and name not in known
    )


def markdown(report: SettingsReport) -> str:
    """The reference as a table. Pure."""
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for setting in report.settings:
        meaning = _PAGE.sub(r"[\1](\1)", setting.meaning)
        lines.append(f"| `{setting.variable}` | {setting.default} | {meaning} |")
    return "\n".join(lines)


def settings_view(report: SettingsReport) -> View:
    """What is set, then what is not. Pure."""
    groups = (("Set here", True), ("Defaults", False))
    return View(
        title=f"settings — {sum(s.is_set for s in report.settings)} of {len(report.settings)} are set",
        sections=filled(
            Section(
                title=title,
                header=("Variable", "Value", "Meaning"),
                rows=tuple((s.variable, s.value or "none", s.meaning) for s in report.settings if s.is_set is is_set),
            )
            for title, is_set in groups
        ),
    )


def replaced(document: str, report: SettingsReport) -> str:
    """The document with the table between its markers made anew. Pure."""
    before, _, rest = document.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{markdown(report)}\n{END}{after}"


def _described() -> Iterator[tuple[str, str, str]]:
    """(field, variable, meaning) of each setting that a deployment can make. Pure."""
    for name, field in Settings.model_fields.items():
        if variable := variable_of(name):
            yield name, variable, " ".join((field.description or "").split()).rstrip(".")


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ",".join(value)
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{value} ({human_bytes(value)})"
    return f"{value:g}" if isinstance(value, float) else str(value)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the table of each named document anew. Writes."""
    for name in sys.argv[1:] if argv is None else argv:
        path = Path(name)
        path.write_text(replaced(path.read_text("utf-8"), settings_report({})), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
