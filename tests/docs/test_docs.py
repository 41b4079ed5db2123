"""Documents, Makefile, pins and settings say the same thing, and nothing is tied to one machine."""

import base64
import os
import re
import stat
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from omnigraph_ops.config.settings import settings_report
from stack.fill_env import filled, write

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ROOT / "docs/reference/settings.md"
SKIPPED_DIRS = {
    ".git",
    ".venv",
    ".demo",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    "site",
}
# Spelled in pieces so that this file passes its own test.
MACHINE_PATHS = re.compile("|".join(rf"(?<![\w.}}-])/{name}/" for name in ("work", "opt/play", "root", "farm")))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def repository_files() -> list[Path]:
    """What git would take, or every file outside caches where this is no clone."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    if (ROOT / ".git").exists():
        names = subprocess.run(command, check=True, capture_output=True).stdout.split(b"\0")
        return sorted(path for name in names if name and (path := ROOT / os.fsdecode(name)).is_file())
    return sorted(_walk())


def _walk() -> Iterator[Path]:
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in SKIPPED_DIRS]
        yield from (Path(folder) / name for name in files)


def text_of(path: Path) -> str:
    return path.read_bytes().decode(errors="replace")


MARKDOWN = [path for path in repository_files() if path.suffix == ".md"]


def in_repository(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", MARKDOWN, ids=in_repository)
def test_relative_links_lead_somewhere(document: Path) -> None:
    targets = [target.split("#")[0] for target in LINK.findall(text_of(document)) if "://" not in target]
    dead = [target for target in targets if target and not (document.parent / target).exists()]
    assert dead == []


@pytest.mark.parametrize("document", MARKDOWN, ids=in_repository)
def test_makefile_has_every_target_that_documents_name(document: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", text_of(ROOT / "Makefile"), re.MULTILINE))
    text = text_of(document)
    commands = re.findall(r"^make ([a-z -]+)", text, re.MULTILINE) + re.findall(r"`make ([a-z -]+)", text)
    assert {word for command in commands for word in command.split()} <= targets


def test_every_make_target_has_a_line_of_help() -> None:
    makefile = text_of(ROOT / "Makefile")
    phony = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    described = set(re.findall(r"^([a-z][a-z-]*):.* ## .", makefile, re.MULTILINE))
    assert described == {target for line in phony for target in line.split()}


def test_documents_name_files_that_exist() -> None:
    names = {name for path in MARKDOWN for name in re.findall(r"`((?:tests|bench|stack)/[\w/.]+\.py)", text_of(path))}
    assert {name for name in names if not (ROOT / name).is_file()} == set()


def test_every_setting_is_documented_and_every_documented_one_exists() -> None:
    pattern = r"OMNIGRAPH_[A-Z0-9_]*[A-Z0-9]"
    in_code = {setting.variable for setting in settings_report({}).settings}
    maintenance = text_of(SETTINGS).split("## Maintenance")[1].split("## ")[0]
    assert set(re.findall(rf"^\| `({pattern})`", maintenance, re.MULTILINE)) == in_code
    settings = set(re.findall(pattern, text_of(SETTINGS)))
    named = {name for path in MARKDOWN for name in re.findall(pattern, text_of(path)) if path.name != "CHANGELOG.md"}
    assert named <= settings


def pins() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in text_of(ROOT / "requirements.txt").splitlines():
        name, version = line.split(";")[0].strip().split("==")
        found.setdefault(name, set()).add(version)
    return found


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    return table


def test_requirements_hold_nothing_but_exact_pins() -> None:
    exact = re.compile(r"[a-z0-9.-]+==[0-9][\w.+-]*( ; [^#@]+)?")
    assert [line for line in text_of(ROOT / "requirements.txt").splitlines() if not exact.fullmatch(line)] == []


def test_requirements_cover_the_project_and_agree_with_its_pins() -> None:
    extras = project()["optional-dependencies"].values()
    wanted = [r for part in (project()["dependencies"], *extras) for r in part if not r.startswith("omnigraph-ops[")]
    names = {re.split(r"[\[<>=]", requirement)[0] for requirement in wanted}
    assert names <= set(pins())
    exact = {name: {version} for name, version in (r.split("==") for r in wanted if "==" in r)}
    assert {name: pins()[name] for name in exact} == exact


def test_the_extra_all_has_every_extra_that_is_not_for_development() -> None:
    extras = project()["optional-dependencies"]
    (everything,) = extras["all"]
    named = set(re.findall(r"[\w-]+", everything.partition("[")[2]))
    assert named == extras.keys() - {"all", "dev", "spark-worker"}
    assert extras["spark-worker"] == ["omnigraph-ops[s3]"]


def test_requirements_hold_what_the_deployment_is_built_on() -> None:
    deployment = {"apache-airflow", "apache-airflow-providers-apache-spark", "pylance", "pyarrow", "s3fs", "pyspark"}
    assert deployment | {"pytest"} <= set(pins())


def test_the_image_has_the_airflow_of_the_requirements() -> None:
    (airflow,) = pins()["apache-airflow"]
    assert text_of(ROOT / "Dockerfile").splitlines()[1] == f"FROM apache/airflow:{airflow}-python3.11"


def test_pyspark_and_its_client_are_one_version() -> None:
    assert pins()["pyspark"] == pins()["pyspark-client"]


def test_pylance_is_of_the_release_line_that_every_engine_reads() -> None:
    assert {version.rsplit(".", 1)[0] for version in pins()["pylance"]} == {"13.0"}


def test_no_file_holds_a_path_of_one_machine() -> None:
    assert [in_repository(path) for path in repository_files() if MACHINE_PATHS.search(text_of(path))] == []


COMPOSE = text_of(ROOT / "docker-compose.yaml")
ENV_EXAMPLE = text_of(ROOT / ".env.example")


def services() -> dict[str, dict[str, Any]]:
    """The services of docker-compose.yaml, anchors and merges resolved."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE)["services"]
    return found


def test_compose_refuses_to_start_without_its_variables() -> None:
    required = set(re.findall(r"\$\{(\w+):\?", COMPOSE))
    assert required == set(re.findall(r"\$\{?(\w+)", COMPOSE))
    assert required == set(re.findall(r"^(\w+)=", ENV_EXAMPLE, re.MULTILINE))


def test_no_secret_has_a_value_in_the_repository() -> None:
    secret = r"(?:PASSWORD|SECRET|\w*_KEY)"
    given = re.findall(rf"^(\w*{secret})=(?!$)", ENV_EXAMPLE, re.MULTILINE)
    assert given == []
    everything = {name: str(v) for s in services().values() for name, v in s.get("environment", {}).items()}
    literal = {name for name, v in everything.items() if re.search(rf"{secret}$", name) and not v.startswith("${")}
    assert literal == set()


def test_make_env_fills_what_is_empty_and_keeps_what_is_there() -> None:
    made = filled(ENV_EXAMPLE, "POSTGRES_PASSWORD=kept\nS3_ROOT_SECRET_KEY=\n")
    assert made["POSTGRES_PASSWORD"] == "kept"
    assert all(made.values())
    secrets = [value for name, value in made.items() if not re.search(rf"^{name}=.", ENV_EXAMPLE, re.MULTILINE)]
    assert len(set(secrets)) == len(secrets) >= 10
    # The database's is part of a URL, the Fernet key has a form of its own.
    assert all(re.fullmatch(r"[\w-]+=*", value) for value in secrets)
    assert len(base64.urlsafe_b64decode(made["AIRFLOW_FERNET_KEY"])) == 32


def test_make_env_leaves_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    target = tmp_path / ".env"
    target.touch(mode=0o644)
    write(target, filled(ENV_EXAMPLE))
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_every_compose_service_that_stays_has_a_health_check() -> None:
    found = services()
    assert {name for name, service in found.items() if "healthcheck" not in service} == {"init", "seed"}
    assert {name for name, service in found.items() if service["restart"] == "no"} == {"init", "seed"}
    waited_for = {name for service in found.values() for name in service.get("depends_on", {})}
    assert waited_for <= set(found)


def test_compose_names_only_networks_and_volumes_that_it_declares() -> None:
    whole = yaml.safe_load(COMPOSE)
    volumes = {mount.partition(":")[0] for s in services().values() for mount in s.get("volumes", ())}
    assert volumes == set(whole["volumes"])
    assert {name for s in services().values() for name in s["networks"]} == set(whole["networks"])


def test_compose_publishes_only_to_this_machine_and_takes_rights_away() -> None:
    for name, service in services().items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service.get("user") not in {"root", "0", "0:0"}, name
        # PostgreSQL's image begins as root and drops that by itself.
        assert service.get("cap_drop") == ["ALL"] or name == "postgres", name
        assert service["networks"], name


def test_only_the_page_is_published_and_services_reach_only_their_neighbours() -> None:
    """Spark's master runs what it is sent, and the store and PostgreSQL answer whoever reaches them."""
    found = services()
    assert {name for name, service in found.items() if "ports" in service} == {"api-server"}
    both = {"api-server", "scheduler"}
    neighbours = {
        "airflow": {"postgres", "init", "dag-processor", "triggerer"},
        "data": {"s3", "seed", "spark-master", "spark-worker"},
    }
    for network, names in neighbours.items():
        assert {name for name, service in found.items() if network in service["networks"]} == names | both


def test_the_image_ends_as_the_user_airflow() -> None:
    assert re.findall(r"^USER (\S+)$", text_of(ROOT / "Dockerfile"), re.MULTILINE)[-1] == "airflow"
    assert {name for name, service in services().items() if "user" in service or "privileged" in service} == set()


def test_credentials_of_the_store_are_where_they_are_needed() -> None:
    found = {name: set(map(str, service.get("environment", {}).values())) for name, service in services().items()}
    holders = {
        role: {name for name, values in found.items() if any(f"S3_{role}_SECRET_KEY" in value for value in values)}
        for role in ("ROOT", "MAINTAINER", "READER")
    }
    assert holders["ROOT"] == {"s3", "seed"}
    assert holders["MAINTAINER"] == {"scheduler", "spark-worker", "seed"}
    assert holders["READER"] == {"api-server", "seed"}


def test_the_image_is_built_from_files_that_are_there() -> None:
    sources = re.findall(r"^COPY (?:--\S+ )?(.+) \S+$", text_of(ROOT / "Dockerfile"), re.MULTILINE)
    names = {name for line in sources for name in line.split()}
    assert {name for name in names if not (ROOT / name).exists()} == set()
    context = set(re.findall(r"^!(\S+)$", text_of(ROOT / ".dockerignore"), re.MULTILINE))
    assert names == context


def test_image_tests_and_compose_use_one_store() -> None:
    version = re.search(r"^VERSITYGW_VERSION := (\S+)$", text_of(ROOT / "Makefile"), re.MULTILINE)
    assert version is not None
    assert services()["s3"]["image"] == f"versity/versitygw:{version[1]}"
