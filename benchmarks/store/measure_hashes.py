"""How fast content can be named, one thread over 256 MiB in pieces of 4 MiB: for docs/decisions/0012."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from pathlib import Path

import blake3
import xxhash

RESULTS = Path(__file__).parents[1] / "results" / "store"
PIECE, PIECES = os.urandom(2**22), 64
HASHES = {
    "BLAKE2b": hashlib.blake2b,
    "SHA-256": hashlib.sha256,
    "BLAKE3": blake3.blake3,
    "XXH3": xxhash.xxh3_128,
}


def main() -> None:
    rates = {}
    for name, make in HASHES.items():
        hasher, started = make(), time.process_time()
        for _ in range(PIECES):
            hasher.update(PIECE)
        hasher.digest()
        rates[name] = len(PIECE) * PIECES / (time.process_time() - started) / 1e9
        print(f"{name:8} {rates[name]:6.2f} GB/s")
    RESULTS.mkdir(parents=True, exist_ok=True)
    found = {"platform": platform.platform(), "gigabytes_per_second": rates}
    (RESULTS / "hashes.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
