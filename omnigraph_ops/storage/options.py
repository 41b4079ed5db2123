"""Storage options for S3 from the environment, as the engine reads it: one place for both clients."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

_TRUTHY = {"1", "true", "TRUE", "True", "yes", "YES", "on", "ON"}


_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAccess:
    """How the store of one graph is reached: variables that win over those of the process.

    Only what is named here is handed to the clients as a value; other credentials stay where the clients find them.
    """

    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """As in the environment: `AWS_ENDPOINT_URL_S3`, `AWS_SECRET_ACCESS_KEY`. Never printed."""

    def lance(self, root: str) -> dict[str, str] | None:
        """`storage_options` for pylance, None for local paths. Reads."""
        options = lance_options(root, {**os.environ, **self.variables})
        return None if options is None else {**options, **self._named(*(name.lower() for name in _CREDENTIALS))}

    def s3fs(self, root: str) -> dict[str, Any]:
        """Keyword arguments for `s3fs.S3FileSystem`, empty for local paths. Reads."""
        options = s3fs_options(root, {**os.environ, **self.variables})
        if not options:
            return {}
        region = self.variables.get("AWS_REGION")
        regional = {"client_kwargs": {"region_name": region}} if region else {}
        return {**options, **regional, **self._named("key", "secret", "token")}

    def _named(self, *names: str) -> dict[str, str]:
        """The credentials that are named here, under the names of a client. Pure."""
        pairs = zip(names, _CREDENTIALS, strict=True)
        return {name: self.variables[variable] for name, variable in pairs if variable in self.variables}


AMBIENT = StoreAccess()
"""The environment of this process, and nothing else."""


def endpoint(env: Mapping[str, str]) -> str | None:
    """The S3 endpoint, the service-specific variable first, None for AWS itself. Pure."""
    return env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or None


def lance_options(root: str, environment: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """`storage_options` for pylance, None for local paths. Credentials stay in the environment. Reads."""
    if not root.startswith("s3://"):
        return None
    env = os.environ if environment is None else environment
    options: dict[str, str] = {}
    url = endpoint(env)
    if url is not None:
        options["aws_endpoint"] = url
        if url.startswith("http://") or env.get("AWS_ALLOW_HTTP", "") in _TRUTHY:
            options["allow_http"] = "true"
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    options["aws_region"] = region or "us-east-1"
    return options


def s3fs_options(root: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Keyword arguments for `s3fs.S3FileSystem`, empty for local paths. Reads."""
    if not root.startswith("s3://"):
        return {}
    env = os.environ if environment is None else environment
    options: dict[str, Any] = {"use_listings_cache": False}
    url = endpoint(env)
    if url is not None:
        options["endpoint_url"] = url
    if env.get("AWS_S3_FORCE_PATH_STYLE", "") in _TRUTHY:
        options["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    return options
