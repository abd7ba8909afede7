"""An update that refuses fake tensors is metered for real at two batch sizes, and the plan says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlmem.machine import read_machine
from rlmem.measure.parts import traced_parts
from rlmem.plan import make_plan
from rlmem.plan.model import MEASURED
from rlmem.run import load_run

EXTRACTOR = """
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor


class Stubborn(BaseFeaturesExtractor):
    def __init__(self, space, features_dim=2048):
        super().__init__(space, features_dim)
        self.net = nn.Linear(space.shape[0], features_dim)

    def forward(self, rows):
        if isinstance(rows, FakeTensor):
            raise RuntimeError("real tensors only")
        return self.net(rows)
"""

RUN = """
framework: sb3
algorithm: PPO
env: {observation: {shape: [512]}, action: {discrete: 4}}
training: {n_steps: 256, batch_size: 128}
policy: {class: MlpPolicy, features: stubborn:Stubborn}
"""


def test_it_is_metered_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLMEM_CACHE", str(tmp_path / "cache"))
    Path("stubborn.py").write_text(EXTRACTOR)
    Path("run.yaml").write_text(RUN)
    run = load_run("run.yaml")
    parts = traced_parts(run)
    assert parts.update is None
    assert parts.step is not None
    update = make_plan(run, read_machine(), parts).phase("update")
    step = next(part for part in update.components if part.path == "update/step")
    assert step.basis == MEASURED
    assert "8 and 32 rows" in step.formula
