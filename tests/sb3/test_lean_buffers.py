"""Lean buffers against the stock ones, call by call: the same minibatches from the same random numbers."""

from __future__ import annotations

import copy
import pickle

import cloudpickle
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer
from stable_baselines3.common.buffers import (
    DictReplayBuffer,
    DictRolloutBuffer,
    NStepReplayBuffer,
    ReplayBuffer,
    RolloutBuffer,
)
from stable_baselines3.common.vec_env import VecNormalize

import rlmem.sb3
from rlmem.errors import LeanBufferError
from rlmem.sb3 import (
    LeanDictReplayBuffer,
    LeanDictRolloutBuffer,
    LeanHerReplayBuffer,
    LeanMaskableRolloutBuffer,
    LeanNStepReplayBuffer,
    LeanReplayBuffer,
    LeanRolloutBuffer,
)
from rlmem.sb3.pair_transfer import pair_to_device

IMAGE = spaces.Box(0, 255, (4, 12, 12), np.uint8)
BOTH = spaces.Dict({"image": IMAGE, "state": spaces.Discrete(3), "bits": spaces.MultiBinary(5)})
ACTIONS = spaces.Box(-1, 1, (2,), np.float32)


class _Stream:
    """Frame stacks of a few environments, one step after the other, with episodes that end."""

    def __init__(self, space, n_envs, seed=0):
        self.space, self.n_envs, self.random = space, n_envs, np.random.default_rng(seed)
        self.space.seed(seed)
        self.frames = [self._observed() for _ in range(n_envs)]

    def _observed(self):
        return self.space.sample()

    def _moved_on(self, before):
        after = self._observed()
        if self.space is IMAGE:
            after[:-1] = before[1:]
        elif self.space is BOTH:
            after["image"][:-1] = before["image"][1:]
        return after

    def _stacked(self, frames):
        if isinstance(self.space, spaces.Dict):
            return {key: np.stack([frame[key] for frame in frames]) for key in self.space.spaces}
        return np.stack(frames)

    def step(self):
        before, after = self.frames, [self._moved_on(frame) for frame in self.frames]
        dones = self.random.random(self.n_envs) < 0.15
        self.frames = [self._observed() if done else frame for done, frame in zip(dones, after, strict=True)]
        infos = [{"TimeLimit.truncated": bool(self.random.random() < 0.5)} if done else {} for done in dones]
        return self._stacked(before), self._stacked(after), self.random.normal(size=self.n_envs), dones, infos


def _fill_replay(buffers, steps, seed=0):
    stream = _Stream(buffers[0].observation_space, buffers[0].n_envs, seed)
    for _ in range(steps):
        before, after, rewards, dones, infos = stream.step()
        actions = stream.random.normal(size=(stream.n_envs, 2)).astype(np.float32)
        for buffer in buffers:
            buffer.add(copy.deepcopy(before), copy.deepcopy(after), actions, rewards, dones, infos)


def _fill_rollout(buffers, seed=0, **more):
    stream = _Stream(buffers[0].observation_space, buffers[0].n_envs, seed)
    dones = np.zeros(stream.n_envs, bool)
    for buffer in buffers:
        buffer.reset()
    for _ in range(buffers[0].buffer_size):
        before, _, rewards, dones, _ = stream.step()
        actions = stream.random.normal(size=(stream.n_envs, buffers[0].action_dim)).astype(np.float32)
        values = torch.as_tensor(stream.random.normal(size=(2, stream.n_envs)))
        masks = {name: stream.random.random(size) < 0.5 for name, size in more.items()}
        for buffer in buffers:
            buffer.add(copy.deepcopy(before), actions, rewards, dones, *values, **masks)
    for buffer in buffers:
        buffer.compute_returns_and_advantage(torch.ones(stream.n_envs), dones)


def _drawn(buffer, *args, **kwargs):
    np.random.seed(7)
    return tuple(buffer.sample(*args, **kwargs))


def _epoch(buffer, batch_size):
    np.random.seed(7)
    return tuple(tuple(batch) for batch in buffer.get(batch_size))


# --- replay ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("steps", [5, 40, 41, 137], ids=["few", "full", "wrapped", "thrice"])
@pytest.mark.parametrize(
    ("stock", "lean", "space", "kwargs"),
    [
        (ReplayBuffer, LeanReplayBuffer, IMAGE, {}),
        (ReplayBuffer, LeanReplayBuffer, IMAGE, {"handle_timeout_termination": False}),
        (DictReplayBuffer, LeanReplayBuffer, BOTH, {}),
        (DictReplayBuffer, LeanDictReplayBuffer, BOTH, {}),
        (NStepReplayBuffer, LeanNStepReplayBuffer, IMAGE, {"n_steps": 3, "gamma": 0.9}),
    ],
)
def test_replay_draws_what_the_stock_buffer_draws(same, stock, lean, space, n_envs, steps, kwargs):
    buffers = [kind(40 * n_envs, space, ACTIONS, device="cpu", n_envs=n_envs, **kwargs) for kind in (stock, lean)]
    _fill_replay(buffers, steps)
    assert same(_drawn(buffers[0], 32), _drawn(buffers[1], 32))
    assert np.random.random() == (np.random.seed(7), buffers[0].sample(32), np.random.random())[2]
    assert (buffers[0].pos, buffers[0].full, buffers[0].size()) == (buffers[1].pos, buffers[1].full, buffers[1].size())


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (5,), np.float32), BOTH])
def test_replay_normalizes_as_the_stock_buffer_does(same, wanderers, space):
    env = VecNormalize(
        wanderers("dict" if space is BOTH else "window"), norm_obs_keys=["window"] if space is BOTH else None
    )
    env.reset()
    for _ in range(30):
        env.step([env.action_space.sample()])
    space = env.observation_space
    stock = DictReplayBuffer if isinstance(space, spaces.Dict) else ReplayBuffer
    buffers = [kind(50, space, ACTIONS, device="cpu") for kind in (stock, LeanReplayBuffer)]
    _fill_replay(buffers, 60)
    assert same(_drawn(buffers[0], 32, env=env), _drawn(buffers[1], 32, env=env))


def test_extend_stores_a_batch_and_reset_forgets_it(same):
    buffers = [kind(20, IMAGE, ACTIONS, device="cpu") for kind in (ReplayBuffer, LeanReplayBuffer)]
    stream = _Stream(IMAGE, 1)
    steps = [stream.step() for _ in range(6)]
    batch = [
        np.stack(items) for items in zip(*[(a, b, np.zeros((1, 2)), r, d) for a, b, r, d, _ in steps], strict=True)
    ]
    for buffer in buffers:
        buffer.extend(*batch, [infos for *_, infos in steps])
    assert same(_drawn(buffers[0], 9), _drawn(buffers[1], 9))
    buffers[1].reset()
    assert buffers[1].size() == 0
    _fill_replay(buffers[1:], 3)


def _pickled(buffer):
    return pickle.loads(pickle.dumps(buffer))  # noqa: S301


def _cloudpickled(buffer):
    return cloudpickle.loads(cloudpickle.dumps(buffer))


@pytest.mark.parametrize("clone", [copy.deepcopy, _pickled, _cloudpickled])
@pytest.mark.parametrize("space", [IMAGE, BOTH])
@pytest.mark.parametrize("compact", [False, True])
def test_a_copied_buffer_draws_the_same_and_goes_on(same, clone, space, compact):
    buffer = LeanReplayBuffer(120, space, ACTIONS, device="cpu", n_envs=3, compact=compact)
    _fill_replay([buffer], 70)
    twin = clone(buffer)
    assert type(twin) is type(buffer)
    _fill_replay([buffer, twin], 15, seed=1)
    assert same(_drawn(buffer, 32), _drawn(twin, 32))


def test_optimize_memory_usage_is_refused():
    for kwargs in ({"handle_timeout_termination": False}, {}):
        with pytest.raises(LeanBufferError, match="optimize_memory_usage must be False"):
            LeanReplayBuffer(10, IMAGE, ACTIONS, optimize_memory_usage=True, **kwargs)
    with pytest.raises(LeanBufferError, match="optimize_memory_usage must be False"):
        LeanReplayBuffer(10, IMAGE, ACTIONS, "cpu", 1, True, False)


def test_what_two_observations_share_goes_to_the_device_once():
    root = np.random.default_rng(0).integers(0, 255, (6, 5, 8)).astype(np.uint8)
    for dtype in (np.uint8, np.uint16, np.float32):
        typed = root.view(dtype)
        moved = pair_to_device(typed[:, :4], typed[:, 1:], torch.device("cpu"))
        assert torch.equal(moved[0].view(torch.uint8), torch.tensor(root[:, :4]))
        assert torch.equal(moved[1].view(torch.uint8), torch.tensor(root[:, 1:]))
        assert moved[0].dtype == torch.as_tensor(typed).dtype
    alone = pair_to_device(root[:, :2].copy(), root[:, 1:3].copy(), torch.device("cpu"))
    assert torch.equal(alone[1], torch.tensor(root[:, 1:3]))


# --- rollouts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize(
    ("stock", "lean", "space"),
    [
        (RolloutBuffer, LeanRolloutBuffer, IMAGE),
        (DictRolloutBuffer, LeanRolloutBuffer, BOTH),
        (DictRolloutBuffer, LeanDictRolloutBuffer, BOTH),
        (RolloutBuffer, LeanRolloutBuffer, spaces.Discrete(5)),
    ],
)
def test_rollouts_come_in_the_order_of_the_stock_buffer(same, stock, lean, space, n_envs, batch_size):
    buffers = [kind(33, space, ACTIONS, device="cpu", n_envs=n_envs) for kind in (stock, lean)]
    for rollout in range(3):
        _fill_rollout(buffers, seed=rollout)
        for _epoch_number in range(2):
            assert same(_epoch(buffers[0], batch_size), _epoch(buffers[1], batch_size))
        assert buffers[1].generator_ready
        assert buffers[0].actions.shape == buffers[1].actions.shape


@pytest.mark.parametrize(
    ("stock", "space"), [(MaskableRolloutBuffer, IMAGE), (MaskableDictRolloutBuffer, BOTH)], ids=["box", "dict"]
)
@pytest.mark.parametrize("actions", [spaces.Discrete(7), spaces.MultiDiscrete([3, 4]), spaces.MultiBinary(3)])
@pytest.mark.parametrize("masked", [True, False])
def test_masks_are_the_stock_buffers(same, stock, space, actions, masked):
    buffers = [kind(33, space, actions, device="cpu", n_envs=2) for kind in (stock, LeanMaskableRolloutBuffer)]
    for rollout in range(2):
        _fill_rollout(buffers, seed=rollout, **({"action_masks": (2, buffers[0].mask_dims)} if masked else {}))
        assert same(_epoch(buffers[0], 8), _epoch(buffers[1], 8))


def test_masks_of_continuous_actions_are_refused():
    with pytest.raises(ValueError, match="to be masked"):
        LeanMaskableRolloutBuffer(8, IMAGE, ACTIONS)


def test_get_needs_no_flattened_copy_of_the_observations():
    buffer = LeanRolloutBuffer(64, IMAGE, ACTIONS, device="cpu", n_envs=4)
    _fill_rollout([buffer])
    before = buffer.nbytes
    next(buffer.get(8))
    assert buffer.nbytes <= before + 1000


# --- both --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.int8, np.uint16, np.int32, np.int64, np.float16, np.float32, np.float64]
)
@pytest.mark.parametrize("actions", [spaces.Discrete(10), spaces.Box(-1, 1, dtype=np.float64)])
@pytest.mark.parametrize("in_dict", [False, True])
def test_buffers_that_nothing_was_written_to_are_nought_of_the_right_type(same, dtype, actions, in_dict):
    space = spaces.Box(0, 100, dtype=dtype)
    space = spaces.Dict({"obs": space, "other": spaces.Box(0, 100, dtype=np.uint8)}) if in_dict else space
    stock = (DictReplayBuffer, DictRolloutBuffer) if in_dict else (ReplayBuffer, RolloutBuffer)
    for one, other in zip(stock, (LeanReplayBuffer, LeanRolloutBuffer), strict=True):
        buffers = [
            kind(buffer_size=2, observation_space=space, action_space=actions, device="cpu") for kind in (one, other)
        ]
        for buffer in buffers:
            buffer.full = True
        if issubclass(one, ReplayBuffer):
            assert same(_drawn(buffers[0], 64), _drawn(buffers[1], 64))
        else:
            assert same(_epoch(buffers[0], 64), _epoch(buffers[1], 64))


def test_observations_can_be_indexed_as_if_they_were_an_array():
    stock, lean = (kind(120, IMAGE, ACTIONS, device="cpu", n_envs=3) for kind in (ReplayBuffer, LeanReplayBuffer))
    _fill_replay([stock, lean], 50)
    assert lean.observations.shape == stock.observations.shape
    assert lean.observations.dtype == stock.observations.dtype
    assert lean.observations.ndim == 5
    for index in (
        3,
        -1,
        (5, 2),
        slice(2, 9, 3),
        (slice(None, 4), 1),
        [1, 2],
        (np.array([-1, 3]), np.array([0, -1]), slice(None), 4),
    ):
        for name in ("observations", "next_observations"):
            assert np.array_equal(getattr(lean, name)[index], getattr(stock, name)[index]), index
    assert "(40, 3, 4, 12, 12)" in repr(lean.observations)


def test_observations_are_never_an_array_by_accident():
    buffer = LeanRolloutBuffer(16, IMAGE, ACTIONS, device="cpu")
    with pytest.raises(LeanBufferError, match=r"9\.00 KiB: use sample"):
        np.asarray(buffer.observations)
    with pytest.raises(LeanBufferError, match="written in order, and row 0 is next, but got row 3"):
        buffer.observations[3] = np.zeros(IMAGE.shape)
    with pytest.raises(LeanBufferError, match="a row at a time"):
        buffer.observations[:3] = 0
    _fill_rollout([buffer])
    with pytest.raises(IndexError):
        buffer.observations[16] = 0


def test_to_torch_copies_what_is_not_a_minibatch():
    buffer = LeanReplayBuffer(40, IMAGE, ACTIONS, device="cpu")
    _fill_replay([buffer], 30)
    mine = np.zeros((2, 3), np.uint8)
    buffer.to_torch(mine)[:] = 1
    assert not mine.any()
    read = buffer.observations[np.arange(4), np.zeros(4, int)]
    assert np.shares_memory(buffer.to_torch(read).numpy(), read)


def test_less_is_held_than_by_the_stock_buffer():
    stock, lean = (kind(600, IMAGE, ACTIONS, device="cpu", n_envs=3) for kind in (ReplayBuffer, LeanReplayBuffer))
    _fill_replay([lean], 200)
    arrays = sum(value.nbytes for value in vars(lean).values() if isinstance(value, np.ndarray))
    assert lean.nbytes == arrays + lean.columns["observations"].nbytes
    assert lean.columns["observations"].nbytes < 0.35 * (stock.observations.nbytes + stock.next_observations.nbytes)


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda"])
@pytest.mark.parametrize("space", [IMAGE, BOTH])
def test_minibatches_are_on_the_device(device, space):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA")
    replay, rollout = (kind(20, space, ACTIONS, device=device) for kind in (LeanReplayBuffer, LeanRolloutBuffer))
    _fill_replay([replay], 20)
    _fill_rollout([rollout])
    for sample in (replay.sample(5), next(rollout.get(5))):
        for value in (sample.observations, *sample[1:]):
            for tensor in value.values() if isinstance(value, dict) else [value]:
                assert tensor is None or tensor.device.type == replay.device.type


@pytest.mark.parametrize("kind", [LeanDictReplayBuffer, LeanDictRolloutBuffer, LeanHerReplayBuffer])
def test_a_class_for_dict_spaces_refuses_others(kind):
    with pytest.raises(LeanBufferError, match="must be used with a Dict space, but got Box"):
        kind(10, IMAGE, ACTIONS)


def test_a_subclass_is_not_quietly_replaced_where_the_space_is_a_dict():
    class Own(LeanReplayBuffer):
        pass

    with pytest.raises(LeanBufferError, match="Own must be used with no Dict space"):
        Own(10, BOTH, ACTIONS)


def test_unknown_arguments_are_the_stock_classes_business():
    for kind in (LeanReplayBuffer, LeanRolloutBuffer):
        with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'"):
            kind(10, IMAGE, ACTIONS, wrong=1)


def test_every_name_can_be_imported():
    assert all(hasattr(rlmem.sb3, name) for name in rlmem.sb3.__all__)
    assert set(rlmem.sb3.__all__) <= set(dir(rlmem.sb3))
    with pytest.raises(AttributeError):
        rlmem.sb3.LeanCoffee  # noqa: B018
