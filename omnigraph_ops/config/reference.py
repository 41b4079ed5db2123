"""Every setting with its variable, its default, its meaning and its value in an environment, from `Settings` itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omnigraph_ops.config.settings import PREFIX, Settings, variable_of
from omnigraph_ops.errors import did_you_mean
from omnigraph_ops.quantities import human_bytes
from omnigraph_ops.views.view import Section, View, filled

_OF_THE_SHELL = ("OMNIGRAPH_OPS_AIRFLOW_URL", "OMNIGRAPH_OPS_AIRFLOW_TOKEN", "OMNIGRAPH_OPS_TRACEBACK")
"""Variables that only the shell reads; no run depends on them."""


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
