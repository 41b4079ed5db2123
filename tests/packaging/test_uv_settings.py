"""uv is told what pip is configured with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.uv import pip_config, pip_options, uv_environment

pytestmark = pytest.mark.slow


@pytest.fixture
def pip_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pip.conf that pip reads last; no PIP_* variable says anything else."""
    file = tmp_path / "pip.conf"
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    return file


def told(own: dict[str, str] | None = None) -> dict[str, str]:
    return uv_environment(pip_options(pip_config()), own or {})


def test_the_index_of_pip_conf_is_handed_on(pip_conf: Path, tmp_path: Path) -> None:
    pip_conf.write_text(
        "[global]\nindex-url = https://index.example/simple\nextra-index-url =\n  https://a.example/\n  https://b.example/\n"
        f"cert = {tmp_path}/ca.pem\ntrusted-host = index.example\nfind-links = {tmp_path} {tmp_path}/missing\n"
    )
    found = told()
    assert found["UV_DEFAULT_INDEX"] == "https://index.example/simple"
    assert found["UV_INDEX"] == "https://a.example/ https://b.example/"
    assert found["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert found["UV_INSECURE_HOST"] == "index.example"
    assert found["SSL_CERT_FILE"] == f"{tmp_path}/ca.pem"
    assert found["UV_FIND_LINKS"] == str(tmp_path)


def test_a_variable_wins_over_the_file_and_uvs_own_over_both(pip_conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip_conf.write_text(
        "[global]\nindex-url = https://file.example/\n[install]\nindex-url = https://install.example/\n"
    )
    assert told()["UV_DEFAULT_INDEX"] == "https://install.example/"
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.example/")
    assert told()["UV_DEFAULT_INDEX"] == "https://variable.example/"
    assert told({"UV_DEFAULT_INDEX": "https://own.example/"})["UV_DEFAULT_INDEX"] == "https://own.example/"
    assert "UV_DEFAULT_INDEX" not in told({"UV_INDEX_URL": "https://own.example/"})


def test_without_an_index_uv_keeps_its_default() -> None:
    found = uv_environment(pip_options(""), {"VIRTUAL_ENV": "/one/that/is/active"})
    assert found["VIRTUAL_ENV"] == sys.prefix
    assert not {"UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_STRATEGY", "UV_FIND_LINKS"} & set(found)


def test_uv_asks_the_index_that_pip_is_configured_with(pip_conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the real uv: nothing listens there, and the refusal names the address."""
    if not Path(sys.executable).with_name("uv").exists():
        pytest.skip("uv is not in this environment: run make install")
    pip_conf.write_text("[global]\nindex-url = http://127.0.0.1:9/simple\n")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    script = str(Path(__file__).parents[2] / "tools" / "uv.py")
    command = [sys.executable, script, "pip", "install", "--dry-run", "--no-cache", "hatchling"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode != 0
    assert "127.0.0.1:9/simple/hatchling" in done.stderr
