"""A store in a bucket, through obstore: S3, Google Cloud Storage, and memory for tests.

A put is whole or not at all, and durable when it returns, so the manifest's put is the commit. Credentials come from
the environment or from ``options``, are handed to obstore and nowhere else.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from rlmem.errors import MissingExtra, StoreUnavailable
from rlmem.store.naming import Buffer, is_allowed
from rlmem.store.space import Listed, Missing, Space, WrongSize, shown

_MULTIPART_BYTES: Final = 16 * 2**20
"""Objects beyond this are sent in parts, a few at a time."""

_RETRY: Final = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=10), "base": 2},
}
_CLIENT: Final = {"connect_timeout": "10s", "timeout": "120s"}


def _obstore() -> Any:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise MissingExtra(library="obstore", extra="store", purpose="a store in a bucket") from error
    return obstore


@functools.cache
def _memory(name: str) -> Any:
    """Return the bucket in memory of that name, the same one throughout the process."""
    return _obstore().store.MemoryStore()


class BucketSpace(Space):
    """Objects in a bucket, under the URL's path."""

    parallel = 8

    def __init__(self, url: str, *, options: Mapping[str, str]) -> None:
        self.url = shown(url)
        self._library = _obstore()
        self._secrets = [value for value in options.values() if len(value) > 3]
        with self._telling("open"):
            self._bucket = _memory(self.url) if url.startswith("memory://") else self._opened(url, options)

    def _opened(self, url: str, options: Mapping[str, str]) -> Any:
        client = dict(_CLIENT)
        config = dict(options)
        # Settings of the client take the place of those in the environment, so this one is looked up here.
        if config.pop("allow_http", os.environ.get("AWS_ALLOW_HTTP", "false")).lower() == "true":
            client["allow_http"] = "true"
        return self._library.store.from_url(url, config=config or None, client_options=client, retry_config=_RETRY)

    def put(self, name: str, pieces: Sequence[Buffer]) -> None:
        with self._telling(f"write {name} to"):
            size = sum(memoryview(piece).nbytes for piece in pieces)
            if size <= _MULTIPART_BYTES:
                whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
                self._library.put(self._bucket, self.check_name(name), whole, use_multipart=False)
            else:
                parts = _cut(pieces, _MULTIPART_BYTES // 2)
                self._library.put(
                    self._bucket,
                    self.check_name(name),
                    parts,
                    use_multipart=True,
                    chunk_size=_MULTIPART_BYTES // 2,
                    max_concurrency=2,
                )

    def sync(self) -> None:
        """Nothing is left to do: a put returns when the bucket has it."""

    def read_into(self, name: str, out: memoryview) -> None:
        if len(out) == 0:
            if self.size(name):
                raise WrongSize(self.size(name))
            return
        with self._telling(f"read {name} from"):
            answer = self._library.get(self._bucket, self.check_name(name))
            if answer.meta["size"] != len(out):
                raise WrongSize(answer.meta["size"])
            at = 0
            for piece in answer.stream(min_chunk_size=2**20):
                part = memoryview(piece)
                if at + part.nbytes > len(out):
                    raise WrongSize(at + part.nbytes)
                out[at : at + part.nbytes] = part
                at += part.nbytes
            if at != len(out):
                raise WrongSize(at)

    def read_part(self, name: str, start: int, out: memoryview) -> None:
        with self._telling(f"read {name} from"):
            part = memoryview(
                self._library.get_range(self._bucket, self.check_name(name), start=start, length=len(out))
            )
            if part.nbytes != len(out):
                raise WrongSize(start + part.nbytes)
            out[:] = part

    def size(self, name: str) -> int:
        with self._telling(f"read {name} from"):
            size: int = self._library.head(self._bucket, self.check_name(name))["size"]
            return size

    def listed(self, prefix: str) -> Iterator[Listed]:
        with self._telling("list"):
            for batch in self._library.list(self._bucket, f"{prefix}/"):
                for item in batch:
                    if is_allowed(item["path"]):
                        modified = item["last_modified"].timestamp()
                        yield Listed(name=item["path"], nbytes=item["size"], modified_s=modified)

    def delete(self, names: Iterable[str]) -> None:
        with self._telling("delete from"):
            for name in names:
                with contextlib.suppress(FileNotFoundError, self._library.exceptions.NotFoundError):
                    self._library.delete(self._bucket, self.check_name(name))

    def remove_leftovers(self, older_than_s: float) -> None:
        """Nothing is left: the bucket itself forgets uploads that were not finished."""

    @contextlib.contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """Say what could not be done and where, without what was secret in it."""
        try:
            yield
        except (FileNotFoundError, self._library.exceptions.NotFoundError) as error:
            raise Missing(self.url) from error
        except (self._library.exceptions.BaseError, OSError) as error:
            raise StoreUnavailable(f"cannot {what} {self.url}: {self._cause(error)}") from None

    def _cause(self, error: BaseException) -> str:
        text = " ".join(str(error).split("\n\n")[0].split())
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return f"{type(error).__name__}: {text[:300]}"


def _cut(pieces: Sequence[Buffer], most: int) -> Iterator[memoryview]:
    """Yield the pieces, none larger than ``most``."""
    for piece in pieces:
        view = memoryview(piece).cast("B")
        for start in range(0, view.nbytes, most):
            yield view[start : start + most]
