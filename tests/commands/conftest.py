"""The command line, called as a user calls it: in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def rlmem() -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "rlmem", *arguments],
            cwd=ROOT,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def rlmem_json(rlmem: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., Any]:
    def run(*arguments: str) -> Any:
        result = rlmem(*arguments, "--json")
        assert result.returncode in (0, 1), result.stderr
        return json.loads(result.stdout)

    return run
