"""Where a graph is and how its store is reached: one spelling of its root, one reading of the environment.

Lance parses an address as a URL and resolves it; s3fs takes it as it is written. Every address of a verb, a setting or
a file goes through `locate`, which refuses what the two would read differently.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote_to_bytes

from omnigraph_ops.errors import InvalidInput, NotAGraph

_TRUTHY = {"1", "true", "TRUE", "True", "yes", "YES", "on", "ON"}
_ENDPOINT = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Where S3 is, the variable of that service first; neither for AWS itself."""
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_CONNECTIONS = 64
"""Requests of this process that are under way at once. The client's own 10 would hold back the threads of tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAccess:
    """How the store of one graph is reached: variables that win over those of the process.

    Only what is named here is handed to the clients as a value; other credentials stay where the clients find them.
    """

    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """As in the environment: `AWS_ENDPOINT_URL_S3`, `AWS_SECRET_ACCESS_KEY`. Never printed."""

    def lance(self, root: str) -> dict[str, str] | None:
        """`storage_options` for pylance, None for local paths. Reads the environment."""
        if not root.startswith("s3://"):
            return None
        options = self._named(*(name.lower() for name in _CREDENTIALS))
        options["aws_region"] = self._value("AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1"
        if url := self._value(*_ENDPOINT):
            options["aws_endpoint"] = url
            if url.startswith("http://") or self._value("AWS_ALLOW_HTTP") in _TRUTHY:
                options["allow_http"] = "true"
        return options

    def s3fs(self, root: str) -> dict[str, Any]:
        """Keyword arguments for `s3fs.S3FileSystem`, empty for local paths. Reads the environment."""
        if not root.startswith("s3://"):
            return {}
        config: dict[str, Any] = {"max_pool_connections": _CONNECTIONS}
        options: dict[str, Any] = {
            "use_listings_cache": False,
            "config_kwargs": config,
            **self._named("key", "secret", "token"),
        }
        if url := self._value(*_ENDPOINT):
            options["endpoint_url"] = url
        if self._value("AWS_S3_FORCE_PATH_STYLE") in _TRUTHY:
            config["s3"] = {"addressing_style": "path"}
        if region := self.variables.get("AWS_REGION"):
            options["client_kwargs"] = {"region_name": region}
        return options

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values of the credentials that are named here. Pure."""
        return tuple(filter(None, self._named(*_CREDENTIALS).values()))

    def _value(self, *names: str) -> str:
        """What the first of these variables that is not empty says; empty when all are. Reads the environment."""
        env = {**os.environ, **self.variables}
        return next((env[name] for name in names if env.get(name)), "")

    def _named(self, *names: str) -> dict[str, str]:
        """The credentials that are named here, under the names of a client. Pure."""
        pairs = zip(names, _CREDENTIALS, strict=True)
        return {name: self.variables[variable] for name, variable in pairs if variable in self.variables}


AMBIENT = StoreAccess()
"""The environment of this process, and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLocation:
    """A graph as this tool opens it."""

    root: str
    """Absolute plain path, or `s3://bucket/prefix`; never a trailing slash."""

    @property
    def is_local(self) -> bool:
        return not self.root.startswith("s3://")


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?")
_OPAQUE = frozenset({"s3", "file", "http", "https"})
"""Schemes that nobody means as the beginning of a file name."""
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_USER_INFO = re.compile(r"(?<=://).*@", re.DOTALL)
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_NOT_LITERAL = "%?#"
"""Lance decodes the first and ends the path of a URL at the others."""
_RESPELLED = re.compile(r'[ "<>`{}]|[^\x00-\x7f]')
"""Engines store files under URL-encoded keys for these: 0.7.2 all of a graph, 0.9.0 its schema files."""
_NOT_XML = "\ufffe\uffff"
"""No listing of an object store can name these."""
_GRAPH_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NOTHING = "nothing was read or written"


def locate(target: str) -> GraphLocation:
    """Resolve a path, `file://` or `s3://` URI to its one spelling. Reads the working directory.

    Relative paths and their `..` are resolved without looking at links, as the engine does it.

    Raises:
        InvalidInput: it is neither, or Lance and s3fs would not find the same files there.
    """
    scheme = _scheme(_clean(target))
    rest = target[len(scheme) + len("://") :] if scheme else target
    if scheme in {"http", "https"}:
        raise InvalidInput(
            f"{_shown(target)} is a server address; maintenance needs direct storage access, give the graph's file or "
            "s3:// URI"
        )
    if scheme == "s3":
        return GraphLocation(root=_s3_root(target, rest))
    if scheme not in {"", "file"}:
        raise InvalidInput(f"{_shown(target)} has an unsupported scheme {scheme!r}; use a path or an s3:// URI")
    if _WINDOWS.match(rest.lstrip("/") if scheme else rest):
        raise InvalidInput(f"{target} is a path of Windows; {_NOTHING}; give the path under which this machine has it")
    return GraphLocation(root=_local_root(target, _file_path(target, rest) if scheme else rest))


def refuse_respelled(root: str) -> None:
    """Refuse the root of a graph on S3 whose files engines look for under other keys; `InvalidInput`. Pure."""
    found = _RESPELLED.search(root) if root.startswith("s3://") else None
    if found is not None:
        raise InvalidInput(
            f"{root} contains {found[0]!r}, which engines encode in the keys of a graph and this tool does not; "
            f"{_NOTHING}; a graph under such a key cannot be maintained where it is: copy it to a key of letters, "
            "digits and `/._-`, or choose such a key"
        )


def refuse_as_new_place(root: str) -> None:
    """Refuse a place that is only chosen for a graph and in which it would not be whole; `InvalidInput`. Pure."""
    refuse_respelled(root)
    if "?" in root:
        raise InvalidInput(
            f"{root} contains '?', where Lance 9 and later do not find the branches of a graph; {_NOTHING}; "
            "choose another place"
        )


def is_elsewhere(target: str) -> bool:
    """Whether an address names a store that is neither S3 nor a local disk. Pure."""
    found = _SCHEME.match(target)
    return found is not None and found[2] is not None and found[1].lower() not in {"s3", "file"}


def graph_root(cluster_root: str, graph_id: str) -> str:
    """Where a cluster keeps one of its graphs; `InvalidInput` for an id that no engine accepts. Pure."""
    if _GRAPH_ID.fullmatch(graph_id) is None:
        raise InvalidInput(
            f"{graph_id!r} is not the id of a graph, which begins with a letter or `_` and has only letters, digits, "
            f"`_` and `-`; {_NOTHING}"
        )
    return f"{cluster_root}/graphs/{graph_id}.omni"


def _clean(target: str) -> str:
    """The address as it is, refused for what nobody sees in it. Pure."""
    if not target.strip():
        raise InvalidInput("no graph addressed: give a path or an s3:// URI")
    if target != target.strip():
        raise InvalidInput(f"the address {_shown(target)!r} has blanks around it; {_NOTHING}; remove them")
    for character in target:
        if unicodedata.category(character) in {"Cc", "Cs"} or character in _NOT_XML:
            raise InvalidInput(
                f"the address {_shown(target)!a} contains the character {character!a}, which Lance and object stores "
                f"refuse or drop; {_NOTHING}; give the address without it"
            )
    return target


def _shown(target: str) -> str:
    """An address for a message: whatever stands before an `@` may be a secret. Pure."""
    return _USER_INFO.sub("***@", target)


def _scheme(target: str) -> str:
    """The scheme in lower case, empty for a path. Pure."""
    found = _SCHEME.match(target)
    if found is None:
        return ""
    scheme, is_uri = found[1].lower(), found[2] is not None
    if not is_uri and scheme in _OPAQUE:
        raise InvalidInput(
            f"the address begins with {scheme}: and lacks the two slashes of a URI; {_NOTHING}; write {scheme}://…, or "
            f"./{scheme}:… for a folder of that name"
        )
    if scheme in {"s3", "file"} and scheme != found[1]:
        # An engine takes it for a folder of that name.
        raise InvalidInput(f"{_shown(target)} has its scheme in capitals; {_NOTHING}; write {scheme}://…")
    return scheme if is_uri else ""


def _s3_root(target: str, rest: str) -> str:
    """`s3://bucket/key` of an S3 address; slashes at its end do not count, as for the engine. Pure."""
    bucket, _, key = rest.rstrip("/").partition("/")
    if _BUCKET.fullmatch(bucket) is None:
        # A secret may contain a slash: what stands before the `@` is never shown.
        if "@" in rest or ":" in bucket:
            raise InvalidInput(
                f"an s3:// address has user info or a port before its bucket; {_NOTHING}; write s3://bucket/key, and "
                "give credentials and endpoint in the environment or in the connection"
            )
        raise InvalidInput(f"{target} names no bucket that S3 can have; {_NOTHING}; write s3://bucket/key")
    odd = next((segment for segment in key.split("/") if segment in {"", ".", ".."}), None) if key else None
    if odd is not None:
        raise InvalidInput(
            f"{target} has {f'the segment {odd!r}' if odd else 'an empty segment'}, which s3fs takes literally and "
            f"Lance does not; {_NOTHING}; write the key as the store lists it"
        )
    if found := next((c for c in key if c in _NOT_LITERAL), None):
        raise InvalidInput(
            f"{target} contains {found!r}, which s3fs takes literally and Lance does not; {_NOTHING}; a graph under "
            "such a key cannot be maintained where it is"
        )
    return _clean(f"s3://{bucket}/{key}" if key else f"s3://{bucket}")


def _file_path(target: str, rest: str) -> str:
    """The path of a `file://` URI, decoded. Pure."""
    if not rest.startswith("/"):
        raise InvalidInput(
            f"{_shown(target)} names a host; {_NOTHING}; write file:///… with the absolute path, or the path itself"
        )
    if found := next((c for c in rest if c in "?#\\"), None):
        raise InvalidInput(
            f"{target} contains {found!r}, which is %{ord(found):02X} in the path of a URI; {_NOTHING}; encode it, or "
            "give the path itself"
        )
    try:
        path = unquote_to_bytes(rest).decode()
    except UnicodeDecodeError:
        path = ""
    if not path or re.search(r"%(?![0-9A-Fa-f]{2})", rest):
        raise InvalidInput(f"{target} is not encoded as a file URI is; {_NOTHING}; give the path itself")
    return _clean(path)


def _local_root(target: str, path: str) -> str:
    """The absolute path without links followed, `.`, `..` and doubled slashes. Reads the working directory."""
    try:
        # POSIX lets `//` at the beginning mean something else; Python keeps it, Lance does not.
        root = "/" + os.path.abspath(path).lstrip("/")
    except FileNotFoundError:
        raise InvalidInput(
            f"{target} is relative, and the working directory is gone; {_NOTHING}; give an absolute path"
        ) from None
    if root == "/":
        raise InvalidInput(f"{target} is the top of the file system, which is no graph; {_NOTHING}; give a folder")
    return _clean(root)


_TABLE_PATH = re.compile(r"(?:nodes|edges)/[0-9a-f]{16}(?:-[0-9a-f]{16})?")


def is_table_path(path: str) -> bool:
    """Whether an engine would put a table's dataset there. Pure."""
    return _TABLE_PATH.fullmatch(path) is not None


def checked_table_path(root: str, path: str) -> str:
    """A table path from the graph manifest, refused when it leaves the graph. Reads links.

    The graph manifest is foreign input: an absolute, climbing or linked path would let it point
    our deletes at somebody else's files.
    """
    parts = path.split("/")
    if len(parts) != 2 or parts[0] not in {"nodes", "edges"} or parts[1] in {"", ".", ".."} or "\\" in path:
        raise NotAGraph(f"the graph manifest of {root} places a table at {path!r}, outside the graph")
    if not root.startswith("s3://"):
        for place in (os.path.join(root, parts[0]), os.path.join(root, path)):
            if os.path.islink(place):
                raise NotAGraph(f"{place} is a link that leads out of the graph; it is not touched")
    return path


def real_place(root: str) -> str:
    """One spelling of a root, whatever symbolic links lead there. Reads the file system."""
    return root if root.startswith("s3://") else os.path.realpath(root)
