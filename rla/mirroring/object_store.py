"""The files of a run on an object store, through fsspec: list, fetch, send, remove, each tried a few times."""

from __future__ import annotations

import errno
import hashlib
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.mirroring.keys import checked_key
from rla.mirroring.urls import mirror_folder

PAUSES = (0.5, 2.0)  # seconds before each further try; s3fs itself tries five times at each
STAMPS = ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "last_modified", "created")
CHUNK = 50 << 20  # bytes of a piece of a large upload: so s3fs divides one, and so its ETag is made
DIGEST = re.compile(r"[0-9a-f]{32}(-\d+)?")
FIRST_BYTES, MORE_BYTES = 1 << 16, 1 << 23  # of pieces in which contents are compared
EXTRAS = {"s3": "s3", "s3a": "s3"}  # scheme -> extra of ours
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # this machine's disk
NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError", "ProfileNotFound")


@dataclass(frozen=True, slots=True)
class Stored:
    """A version of an object. `stamp` is another one where the content is."""

    size: int
    stamp: str


class ObjectStore:
    """`url`: the folder of one run."""

    def __init__(self, url: str, *, pauses: tuple[float, ...] | None = None) -> None:
        self.url, self.pauses = url, PAUSES if pauses is None else pauses
        self.files = filesystem(url)
        self.digests = True  # stamps that look like an MD5 are one
        self.root = str(self.files._strip_protocol(url))

    def place(self, key: str) -> str:
        return f"{self.root}/{key}" if key else self.root

    def listed(self, prefix: str = "") -> dict[str, Stored]:
        """Key -> version, of the file `prefix` or of all below that folder. Raises UserError for an unsafe name."""
        found = self._tried(lambda: self.files.find(self.place(prefix), detail=True), missing={})
        keys = {checked_key(str(name), self.root): info for name, info in found.items() if info["type"] == "file"}
        return {key: version_of(info) for key, info in keys.items() if key is not None}

    def check(self) -> None:
        """UserError where there is no such bucket, or it may not be read."""
        bucket = self.root.strip("/").partition("/")[0]
        if "s3" in protocols(self.files) and self._tried(lambda: self.files.info(bucket), missing=None) is None:
            raise UserError(f"{self.url}: there is no bucket {bucket}; make it, or name another one")

    def version(self, key: str) -> Stored | None:
        """What the store has now; None where it has nothing."""
        info = self._tried(lambda: self.files.info(self.place(key)), missing=None)
        return None if info is None or info["type"] != "file" else version_of(info)

    def bring(self, key: str, path: Path) -> None:
        """The content of an object into the file `path`."""
        self._tried(lambda: self.files.get_file(self.place(key), str(path)))

    def send(self, path: Path, key: str, condition: Mapping[str, str] | None = None) -> bool:
        """Make the object, whole or not at all. False where `condition`, of `only_over`, does not hold.

        Raises FileNotFoundError where the file here has gone.
        """
        try:
            self._tried(lambda: self._put(path, key, condition or {}), passing=lambda: not path.exists())
        except FileExistsError:
            return False
        return True

    def _put(self, path: Path, key: str, condition: Mapping[str, str]) -> None:
        try:
            self.files.put_file(str(path), self.place(key), **condition)
        except OSError as error:
            if not condition or error.errno != errno.ENOSYS:
                raise
            self.files.put_file(str(path), self.place(key))  # a server that knows no conditions

    def only_over(self, found: Stored | None, size: int) -> dict[str, str]:
        """The condition on which `send` of so many bytes replaces no other version than `found`; empty where fsspec
        has none.
        """
        if found is None:
            return {"mode": "create"} if "mode" in signature(self.files.put_file).parameters else {}
        single = "s3" in protocols(self.files) and size < 2 * CHUNK  # only such an upload takes it
        return {"IfMatch": f'"{found.stamp}"'} if single else {}

    def holds(self, key: str, path: Path, found: Stored, *, surely: bool = True) -> bool:
        """Whether the version `found` of an object is the file `path`.

        Sizes differ, or the stamp is the content's MD5, or the bytes decide: with some encryptions an ETag only looks
        like an MD5. `surely`: False: no bytes are compared where stamps are known to be no MD5.
        """
        try:
            if path.stat().st_size != found.size:
                return False
            digest = self.digests and DIGEST.fullmatch(found.stamp) is not None
            if digest and digest_like(path, found.stamp) == found.stamp:
                return True
            if not digest and not surely:
                return True
            same = self._has_bytes(key, path)
        except FileNotFoundError:
            return False
        if same and digest and "-" not in found.stamp:
            self.digests = False
        return same

    def _has_bytes(self, key: str, path: Path) -> bool:
        place, start, length = self.place(key), 0, FIRST_BYTES  # what differs mostly differs there
        with path.open("rb") as file:
            while piece := file.read(length):
                reading = partial(self.files.cat_file, place, start=start, end=start + len(piece))
                if self._tried(reading, missing=None) != piece:
                    return False
                start, length = start + len(piece), MORE_BYTES
        return True

    def remove(self, key: str) -> None:
        self._tried(lambda: self.files.rm_file(self.place(key)), missing=None)

    def _tried(
        self, call: Callable[[], Any], *, passing: Callable[[], bool] = lambda: False, missing: Any = ...
    ) -> Any:
        """`call()`, again after a pause where the store does not answer. `missing`: for what is not there."""
        for pause in (*self.pauses, None):
            try:
                return call()
            except Exception as error:
                if not isinstance(error, refusals_of_clients()):
                    raise
                if isinstance(error, FileNotFoundError) and missing is not ...:
                    return missing
                if condition_failed(error):
                    raise FileExistsError(errno.EEXIST, said(error)) from None
                if passing() or (isinstance(error, OSError) and error.errno in FULL):
                    raise
                final = self._refusal(error)
                if final is not None:
                    raise UserError(final) from None
                if pause is None:
                    raise UserError(
                        f"{self.url}: the store does not answer ({said(error)}); what is finished is kept "
                        f"in {mirror_folder(self.url)}: call the same again when the store is back"
                    ) from None
                time.sleep(pause)

    def _refusal(self, error: BaseException) -> str | None:
        """What another try would not change."""
        if type(error).__name__ in NO_CREDENTIALS or "credentials" in str(error).lower():
            return f"{self.url}: no credentials ({said(error)}); set AWS_ACCESS_KEY_ID and so on, or AWS_PROFILE"
        if isinstance(error, PermissionError):
            return (
                f"{self.url}: the store refuses it ({said(error)}); the credentials must allow to list, read and write"
            )
        if isinstance(error, FileNotFoundError):
            return f"{self.url}: not there ({said(error)}); another call may have removed it: call the same again"
        return None


def filesystem(url: str) -> Any:
    """Of fsspec, with what its own configuration says. Raises UserError where the package for the scheme is missing."""
    import fsspec

    scheme = url.partition(":")[0]
    try:
        return fsspec.filesystem(scheme, skip_instance_cache=scheme in EXTRAS, use_listings_cache=False)
    except ImportError:
        extra = f"install rla[{EXTRAS[scheme]}]" if scheme in EXTRAS else f"install what fsspec needs for {scheme}"
        raise UserError(f"{url}: a package is missing; {extra}") from None
    except ValueError:
        raise UserError(f"{url}: {scheme} is no kind of store that fsspec knows; s3, gs and abfs are") from None


def protocols(files: Any) -> tuple[str, ...]:
    return (files.protocol,) if isinstance(files.protocol, str) else tuple(files.protocol)


def version_of(info: dict[str, Any]) -> Stored:
    stamp = next((info[name] for name in STAMPS if info.get(name) is not None), "")
    if isinstance(stamp, datetime):  # a listing may say the same as a number
        stamp = stamp.timestamp()
    text = f"{stamp:.6f}" if isinstance(stamp, float) else str(stamp)
    return Stored(size=int(info["size"] or 0), stamp=text.strip('"'))


def refusals_of_clients() -> tuple[type[BaseException], ...]:
    """How the libraries below fsspec say that something did not work, of those that are loaded."""
    found = [("botocore.exceptions", "BotoCoreError"), ("botocore.exceptions", "ClientError")]
    found += [("aiohttp", "ClientError")]
    return OSError, *(getattr(sys.modules[module], name) for module, name in found if module in sys.modules)


def said(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def digest_like(path: Path, stamp: str) -> str:
    """The MD5 of a file, or of a large one that of its pieces' MD5, as S3 makes ETags."""
    with path.open("rb") as file:
        if "-" not in stamp:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        pieces = []
        while piece := file.read(CHUNK):
            pieces.append(hashlib.md5(piece, usedforsecurity=False).digest())
    return f"{hashlib.md5(b''.join(pieces), usedforsecurity=False).hexdigest()}-{len(pieces)}"


def condition_failed(error: BaseException) -> bool:
    """Whether a store has refused an upload because it has another version than the upload is to replace."""
    response = getattr(error.__cause__ or error, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return isinstance(error, FileExistsError) or code in ("PreconditionFailed", "412")
