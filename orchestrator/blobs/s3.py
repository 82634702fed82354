"""Blobs in a bucket of a server that speaks the S3 API, with a cache of copies on this host.

A blob is an object named by its hash, sent whole in one request up to `PART_BYTES` (with its
sha256, which the server compares) and in parts above; the object appears when the last part is
there. An answer that got lost is asked for again: the same name always gets the same content. What
comes back is hashed before anybody may rely on it; a transfer that breaks off goes on where it
stopped.

Address and keys come from the environment as of any AWS client: `AWS_ENDPOINT_URL_S3`,
`AWS_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, or what the machine's role gives.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

from orchestrator.blobs.cache import BlobCache
from orchestrator.blobs.errors import BlobDamaged, BlobMissing, BlobStoreDown
from orchestrator.blobs.types import CHUNK, Blob, Stored, checked, sha256_of

PART_BYTES = 64 << 20
CONNECT_S, ANSWER_S = 5.0, 30.0
ATTEMPTS = 5
"""Of one request; between them the client waits, longer each time, at most 20 s."""
FRESH = timedelta(hours=12)
"""A blob that is there and younger is not sent again; an older one is, to count as written now."""
_PROBE = b"switchback"


class S3Store:
    """See `types.BlobStore`."""

    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        cache: BlobCache,
        attempts: int = ATTEMPTS,
        answer_s: float = ANSWER_S,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self.bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._cache = cache
        self._attempts, self._answer_s, self._part_bytes = attempts, answer_s, part_bytes
        self._lock = threading.Lock()
        self._made: Any = None

    def __repr__(self) -> str:
        return f"s3://{self.bucket}/{self._prefix}"

    # --- writing -----------------------------------------------------------------------------

    def put(self, content: bytes | Iterable[bytes]) -> Blob:
        digest, size = hashlib.sha256(), 0
        with self._cache.draft() as (draft, file):
            for piece in [content] if isinstance(content, bytes) else content:
                digest.update(piece)
                size += len(piece)
                file.write(piece)
            file.flush()
            blob = Blob(digest.hexdigest(), size)
            self._send(draft, blob)
            self._cache.take(draft, blob.sha256)
        return blob

    def put_file(self, path: Path) -> Blob:
        blob = Blob(sha256_of(path), path.stat().st_size)
        self._send(path, blob)
        return blob

    def _send(self, path: Path, blob: Blob) -> None:
        found = self.find(blob.sha256)
        if found is not None and found.written_at > datetime.now(tz=UTC) - FRESH:
            return
        if blob.size <= self._part_bytes:
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != blob.sha256:
                raise BlobDamaged(f"{path} changed while it was read")
            checksum = base64.b64encode(bytes.fromhex(blob.sha256)).decode()
            self._ask("put_object", blob.sha256, Body=content, ChecksumSHA256=checksum)
        else:
            self._send_parts(path, blob)
        kept = self.find(blob.sha256)
        if kept is None or kept.size != blob.size:
            size = "nothing" if kept is None else f"{kept.size} bytes"
            raise BlobStoreDown(f"{self!r} took {blob.size} bytes as {blob.sha256} and has {size}")

    def _send_parts(self, path: Path, blob: Blob) -> None:
        upload = self._ask("create_multipart_upload", blob.sha256)["UploadId"]
        try:
            parts: list[dict[str, Any]] = []
            digest = hashlib.sha256()
            with path.open("rb") as file:
                while piece := file.read(self._part_bytes):
                    digest.update(piece)
                    number = len(parts) + 1
                    answer = self._ask(
                        "upload_part", blob.sha256, UploadId=upload, PartNumber=number, Body=piece
                    )
                    parts.append({"PartNumber": number, "ETag": answer["ETag"]})
            if digest.hexdigest() != blob.sha256:
                raise BlobDamaged(f"{path} changed while it was read")
            whole = {"Parts": parts}
            self._complete(blob.sha256, upload, whole)
        except BaseException:
            self._abort(blob.sha256, upload)
            raise

    def _complete(self, sha256: str, upload: str, whole: dict[str, Any]) -> None:
        """An earlier attempt may have completed it, its answer being lost."""
        try:
            self._ask("complete_multipart_upload", sha256, UploadId=upload, MultipartUpload=whole)
        except BlobMissing:
            if self.find(sha256) is None:
                raise

    def _abort(self, sha256: str, upload: str) -> None:
        try:
            self._ask("abort_multipart_upload", sha256, UploadId=upload)
        except (BlobMissing, BlobStoreDown):
            return  # the bucket's rule for unfinished uploads clears it

    # --- reading -----------------------------------------------------------------------------

    def read(self, sha256: str) -> bytes:
        checked(sha256)
        content = self._cache.read(sha256)
        if content is not None:
            return content
        with self.local(sha256) as path:
            return path.read_bytes()

    def stream(self, sha256: str) -> Iterator[bytes]:
        """Past the cache; the first request is made at once, so that a missing blob is told."""
        body = self._body(sha256, 0)
        return self._checked_pieces(sha256, body)

    def _checked_pieces(self, sha256: str, body: Any) -> Iterator[bytes]:
        digest, offset, attempt = hashlib.sha256(), 0, 1
        while True:
            try:
                piece = body.read(CHUNK)
            except _transfer_errors() as error:
                body.close()
                if attempt >= self._attempts:
                    raise BlobStoreDown(f"{self!r}: {sha256} broke off: {error}") from error
                attempt += 1
                body = self._body(sha256, offset)
                continue
            if not piece:
                break
            digest.update(piece)
            offset += len(piece)
            yield piece
        body.close()
        if digest.hexdigest() != sha256:
            raise BlobDamaged(f"blob {sha256} of {self!r} is damaged: it reads as another")

    def _body(self, sha256: str, offset: int) -> Any:
        options = {"Range": f"bytes={offset}-"} if offset else {}
        return self._ask("get_object", sha256, **options)["Body"]

    @contextmanager
    def local(self, sha256: str) -> Iterator[Path]:
        checked(sha256)
        with self._cache.held(sha256) as path:
            if path is not None and sha256_of(path) == sha256:
                yield path
                return
        with self._cache.draft() as (draft, file):
            for piece in self.stream(sha256):
                file.write(piece)
            file.flush()
            held = self._cache.keep(draft, sha256)
        try:
            yield held
        finally:
            held.unlink(missing_ok=True)

    @contextmanager
    def open(self, sha256: str) -> Iterator[IO[bytes]]:
        with self.local(sha256) as path, path.open("rb") as file:
            yield file

    def find(self, sha256: str) -> Stored | None:
        try:
            answer = self._ask("head_object", sha256)
        except BlobMissing:
            return None
        return Stored(sha256, int(answer["ContentLength"]), answer["LastModified"])

    def exists(self, sha256: str) -> bool:
        return self.find(sha256) is not None

    def delete(self, sha256: str) -> None:
        self._ask("delete_object", sha256)
        self._cache.drop(sha256)

    def all(self) -> Iterator[Stored]:
        after: dict[str, str] = {}
        while True:
            answer = self._call(
                "list_objects_v2",
                "its list",
                {"Bucket": self.bucket, "Prefix": f"{self._prefix}blobs/", **after},
            )
            for each in answer.get("Contents", ()):
                sha256 = each["Key"].rsplit("/", 1)[-1]
                yield Stored(sha256, int(each["Size"]), each["LastModified"])
            if not answer.get("IsTruncated"):
                return
            after = {"ContinuationToken": answer["NextContinuationToken"]}

    def check(self) -> None:
        blob = self.put(_PROBE)
        if b"".join(self.stream(blob.sha256)) != _PROBE:
            raise BlobDamaged(f"{self!r} gave back something else than it was given")

    # --- the client --------------------------------------------------------------------------

    def _ask(self, what: str, sha256: str, **options: Any) -> Any:
        key = f"{self._prefix}blobs/{checked(sha256)[:2]}/{sha256}"
        return self._call(what, sha256, {"Bucket": self.bucket, "Key": key, **options})

    def _call(self, what: str, subject: str, options: dict[str, Any]) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        call: Callable[..., Any] = getattr(self._client(), what)
        try:
            return call(**options)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in ("404", "NoSuchKey", "NoSuchUpload"):
                raise BlobMissing(f"blob {subject} is not in {self!r}") from None
            raise BlobStoreDown(f"{self!r}: {what} of {subject}: {error}") from error
        except BotoCoreError as error:
            raise BlobStoreDown(f"{self!r}: {what} of {subject}: {error}") from error

    def _client(self) -> Any:
        """Safe to use from several threads; making it is not."""
        with self._lock:
            if self._made is None:
                import boto3
                from botocore.config import Config

                config = Config(
                    connect_timeout=CONNECT_S,
                    read_timeout=self._answer_s,
                    retries={"mode": "standard", "total_max_attempts": self._attempts},
                    max_pool_connections=32,
                    # Servers that are not AWS's do not all know the newer checksums.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                )
                self._made = boto3.session.Session().client("s3", config=config)
            return self._made


def _transfer_errors() -> tuple[type[Exception], ...]:
    from botocore.exceptions import (
        HTTPClientError,
        IncompleteReadError,
        ReadTimeoutError,
        ResponseStreamingError,
    )
    from urllib3.exceptions import HTTPError

    return (
        HTTPClientError,
        IncompleteReadError,
        ReadTimeoutError,
        ResponseStreamingError,
        HTTPError,
        OSError,
    )
