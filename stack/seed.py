"""Prepares the S3 store: its accounts, the bucket with its policy, and a demo graph where there is none.

May run again at any time: accounts get the secrets of the environment, a graph that is there is left alone.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from botocore.session import get_session

from omnigraph_ops.demo import DemoSpec, write_demo_graph

ENDPOINT = os.environ["AWS_ENDPOINT_URL_S3"]
REGION = os.environ["AWS_REGION"]
SPEC = DemoSpec(stamp=6, loads=8, rows=200, deletes=20, updates=20)
LOOKS = {"": ("s3:ListBucket", "s3:GetBucketLocation"), "/*": ("s3:GetObject",)}
"""What reading takes, of the bucket and of its objects."""
CHANGES = {
    "": ("s3:ListBucketMultipartUploads",),
    "/*": ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"),
}
"""What every stage together takes beside it (docs/reference/rights.md says which needs less)."""


def credentials(role: str) -> tuple[str, str]:
    """Access key and secret key of an account. Reads the environment."""
    return os.environ[f"S3_{role}_ACCESS_KEY"], os.environ[f"S3_{role}_SECRET_KEY"]


def client(role: str) -> Any:
    """An S3 client of an account. Pure."""
    access, secret = credentials(role)
    return get_session().create_client(
        "s3", endpoint_url=ENDPOINT, region_name=REGION, aws_access_key_id=access, aws_secret_access_key=secret
    )


def ensure_account(role: str) -> None:
    """Make the account, or give it the secret that the environment names. Writes."""
    access, secret = credentials(role)
    body = f"<Secret>{escape(secret)}</Secret><Role>user</Role>"
    if _admin("create-user", f"<Account><Access>{escape(access)}</Access>{body}</Account>") == 409:
        _admin(f"update-user?access={access}", f"<MutableProps>{body}</MutableProps>")


def _admin(call: str, body: str) -> int:
    """One call of versitygw's admin API: signed as S3 calls are, so that no secret is an argument. Writes."""
    request = AWSRequest("PATCH", f"{ENDPOINT}/{call}", data=body.encode())
    S3SigV4Auth(Credentials(*credentials("ROOT")), "s3", REGION).add_auth(request)
    prepared = request.prepare()
    sent = urllib.request.Request(prepared.url, prepared.body, dict(prepared.headers), method="PATCH")
    try:
        with urllib.request.urlopen(sent, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        if error.code == 409:
            return 409
        raise SystemExit(f"the store refused {call.partition('?')[0]}: {error.code} {error.reason}") from None


def allow(bucket: str, who: str, rights: Mapping[str, Iterable[str]]) -> list[dict[str, object]]:
    """The statements of a policy that give an account these rights. Pure."""
    return [
        {
            "Effect": "Allow",
            "Principal": {"AWS": [who]},
            "Action": list(actions),
            "Resource": f"arn:aws:s3:::{bucket}{place}",
        }
        for place, actions in rights.items()
    ]


def policy(bucket: str, *more: dict[str, object]) -> str:
    """Who may do what in the bucket. Reads the environment."""
    (reader, _), (maintainer, _) = credentials("READER"), credentials("MAINTAINER")
    statements = [*allow(bucket, reader, LOOKS), *allow(bucket, maintainer, LOOKS), *allow(bucket, maintainer, CHANGES)]
    return json.dumps({"Version": "2012-10-17", "Statement": [*statements, *more]})


def ensure_bucket(bucket: str) -> None:
    """Make the bucket with its policy. Writes."""
    store = client("ROOT")
    try:
        store.create_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["Error"]["Code"] != "BucketAlreadyOwnedByYou":
            raise
    store.put_bucket_policy(Bucket=bucket, Policy=policy(bucket))


def seed(bucket: str, key: str, spec: DemoSpec = SPEC) -> bool:
    """Put a demo graph there, unless there is a graph; whether one was put. Writes."""
    store = client("MAINTAINER")
    if store.list_objects_v2(Bucket=bucket, Prefix=f"{key}/__manifest/", MaxKeys=1).get("KeyCount"):
        return False
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / "graph.omni"
        write_demo_graph(str(local), spec)
        for file in _manifest_last(local):
            with file.open("rb") as data:
                store.put_object(Bucket=bucket, Key=f"{key}/{file.relative_to(local)}", Body=data)
    return True


def _manifest_last(local: Path) -> Iterator[Path]:
    """Every file; what makes it a graph comes last, so that half a graph is none. Reads."""
    files = sorted(file for file in local.rglob("*") if file.is_file())
    yield from sorted(files, key=lambda file: file.relative_to(local).parts[0] == "__manifest")


def main() -> int:
    """Accounts, bucket, graph. Writes."""
    place = os.environ["OMNIGRAPH_GRAPH"]
    bucket, _, key = place.removeprefix("s3://").partition("/")
    for role in ("MAINTAINER", "READER"):
        ensure_account(role)
    ensure_bucket(bucket)
    made = seed(bucket, key.rstrip("/"))
    sys.stdout.write(f"{place} {'was written' if made else 'is there already'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
