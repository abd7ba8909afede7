"""A bucket that fails: training goes on, the error is said, saving resumes, and no secret is told."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from rlmem.errors import StoreUnavailable
from rlmem.store import ArrayPart, Json, Saver, SaveWarning, Store
from rlmem.store import bucket as bucket_module


class Between(BaseHTTPRequestHandler):
    """Hands requests on to the S3 server, unless it is told to fail."""

    protocol_version = "HTTP/1.1"
    endpoint: str
    mood: SimpleNamespace

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.mood.requests += 1
        fault = self.mood.fault if self.mood.requests % self.mood.each == 0 else None
        if fault == "drops":
            self.close_connection = True
            self.connection.close()
            return
        if fault == "answers 500":
            self.answer(500, {}, b"<Error><Code>InternalError</Code></Error>")
            return
        if fault == "is slow":
            time.sleep(0.2)
        self.hand_on(body)

    def hand_on(self, body: bytes) -> None:
        other = http.client.HTTPConnection(urlsplit(self.endpoint).netloc, timeout=30)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        headers["Host"] = self.headers["Host"]
        other.request(self.command, self.path, body, headers)
        answer = other.getresponse()
        kept = {
            name: value
            for name, value in answer.getheaders()
            if name.lower() not in ("connection", "transfer-encoding")
        }
        self.answer(answer.status, kept, answer.read())
        other.close()

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() != "content-length" or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        elif "Content-Length" not in headers:
            self.send_header("Content-Length", "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815 - as http.server calls them

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def mood() -> SimpleNamespace:
    return SimpleNamespace(fault=None, each=1, requests=0)


@pytest.fixture
def store(
    s3_endpoint: str, kit: SimpleNamespace, mood: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    quick = {**bucket_module._RETRY, "max_retries": 2}
    monkeypatch.setattr(bucket_module, "_RETRY", quick)
    handler = type("Handler", (Between,), {"endpoint": s3_endpoint, "mood": mood})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = kit.s3_place(f"http://127.0.0.1:{server.server_address[1]}", f"faults/{time.time_ns()}")
    yield place.open(create=True)
    server.shutdown()
    server.server_close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("fault", ["answers 500", "drops"])
def test_a_bucket_that_fails(store: Store, mood: SimpleNamespace, kit: SimpleNamespace, fault: str) -> None:
    store.save({"a": Json(value=1)}, step=1)
    saver = Saver(store)
    mood.fault = fault
    with pytest.warns(SaveWarning, match="a snapshot was not written") as said:
        saver.save({"a": ArrayPart(array=np.full(1000, 2), mutable=True)}, step=2)
    saver.save({"a": ArrayPart(array=np.full(1000, 3), mutable=True)}, step=3)  # a second warning would be an error
    with pytest.raises(StoreUnavailable, match=r"cannot (list|write|read) .*s3://bucket/faults/") as caught:
        saver.wait()
    for text in (str(said[0].message), str(caught.value)):
        assert kit.secret not in text
    mood.fault = None
    saver.save({"a": ArrayPart(array=np.full(1000, 4), mutable=True)}, step=4)
    saver.close()
    assert [info.step for info in store.snapshots()] == [1, 4]
    assert store.verify().is_sound


@pytest.mark.parametrize("fault", ["answers 500", "is slow"])
def test_now_and_then_is_not_noticed(store: Store, mood: SimpleNamespace, fault: str) -> None:
    mood.fault, mood.each = fault, 5
    array = np.random.default_rng(0).normal(size=(10, 10_000))
    for step in range(1, 4):
        array[step] += 1
        store.save({"a": ArrayPart(array=array)}, step=step)
    assert np.array_equal(store.load().array("a"), array)
    assert store.verify().is_sound


def test_secrets_are_in_no_manifest_and_no_error(store: Store, kit: SimpleNamespace) -> None:
    store.save({"a": Json(value=1)}, step=1)
    for item in [*store.space.listed("snapshots"), *store.space.listed("objects")]:
        data = bytearray(item.nbytes)
        store.space.read_into(item.name, memoryview(data))
        assert kit.secret.encode() not in data
    wrong = kit.s3_place("http://127.0.0.1:9", "nowhere")
    with pytest.raises(StoreUnavailable) as caught:
        wrong.open(create=True)
    assert kit.secret not in str(caught.value)
