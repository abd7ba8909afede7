"""A lean buffer keeps to its memory limit: it says so, or forgets its oldest rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import DummyVecEnv

from rlmem.errors import InputError, LeanBufferError, MemoryLimitReached
from rlmem.sb3 import LeanHerReplayBuffer, LeanNStepReplayBuffer, LeanReplayBuffer, LeanRolloutBuffer

NOISE = spaces.Box(0, 255, (1000,), np.uint8)
ACTIONS = spaces.Box(-1, 1, (1,), np.float32)


def _write(buffer, steps, *, start=0):
    """Write observations that cannot be compressed and begin with the number of their step."""
    for step in range(start, start + steps):
        before, after = (_noise(buffer.n_envs, number) for number in (step, step + 1))
        buffer.add(
            before,
            after,
            np.zeros((buffer.n_envs, 1)),
            np.full(buffer.n_envs, step),
            np.zeros(buffer.n_envs),
            [{}] * buffer.n_envs,
        )


def _noise(n_envs, number):
    noise = np.random.default_rng(number).integers(0, 256, (n_envs, 1000)).astype(np.uint8)
    noise[:, :4] = np.frombuffer(np.uint32(number).tobytes(), np.uint8)
    return noise


def test_at_the_limit_it_says_what_is_held_and_what_to_do():
    buffer = LeanReplayBuffer(5000, NOISE, ACTIONS, device="cpu", memory_limit="500 kB")
    with pytest.raises(MemoryLimitReached) as raised:
        _write(buffer, 1000)
    words = str(raised.value)
    assert "must hold 5,000 rows of 1 environment, but" in words
    assert "of 488.3 KiB" in words
    assert "when_full='forget'" in words
    assert 300 < buffer.pos < 700


def test_a_rollout_at_its_limit_has_nothing_to_forget():
    buffer = LeanRolloutBuffer(2000, NOISE, ACTIONS, device="cpu", memory_limit=500_000)
    rest = np.zeros((1, 1)), np.zeros(1), np.zeros(1), torch.zeros(1), torch.zeros(1)
    with pytest.raises(MemoryLimitReached, match=r"compact=True$"):
        buffer.extend(*zip(*[(_noise(1, step), *rest) for step in range(1000)], strict=True))


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("kind", [LeanReplayBuffer, LeanNStepReplayBuffer])
def test_it_forgets_the_oldest_and_draws_from_the_rest(kind, n_envs):
    limit = 700_000 * n_envs
    buffer = kind(3000 * n_envs, NOISE, ACTIONS, device="cpu", n_envs=n_envs, memory_limit=limit, when_full="forget")
    for start in range(0, 7000, 500):
        _write(buffer, 500, start=start)
        assert buffer.nbytes < 1.1 * limit
        sample = buffer.sample(400)
        numbers = sample.observations[:, :4].numpy().copy().view(np.uint32).ravel()
        newest = start + 499
        assert newest - numbers.max() < 40
        assert newest - numbers.min() < buffer.size() - buffer.forgotten
        for item, number in zip(sample.observations.numpy()[:20], numbers[:20], strict=True):
            assert any(np.array_equal(item, noise) for noise in _noise(n_envs, number))
    assert 0 < buffer.forgotten < buffer.size()


def test_before_anything_is_forgotten_it_draws_what_the_stock_buffer_draws():
    lean = LeanReplayBuffer(300, NOISE, ACTIONS, device="cpu", memory_limit="10MB", when_full="forget")
    stock = ReplayBuffer(300, NOISE, ACTIONS, device="cpu")
    drawn = []
    for buffer in (stock, lean):
        _write(buffer, 450)
        np.random.seed(0)
        drawn.append(buffer.sample(64))
    assert torch.equal(drawn[0].observations, drawn[1].observations)
    assert torch.equal(drawn[0].next_observations, drawn[1].next_observations)
    assert lean.forgotten == 0


def test_what_was_forgotten_is_made_up_for_once_there_is_room():
    buffer = LeanReplayBuffer(1000, NOISE, ACTIONS, device="cpu", memory_limit="300kB", when_full="forget")
    _write(buffer, 900)
    assert buffer.forgotten > 500
    buffer.memory_limit = None
    _write(buffer, 100 + buffer.forgotten, start=900)
    assert buffer.forgotten == 0
    buffer.sample(1000)


def test_a_limit_that_not_even_the_newest_rows_keep_to_is_an_error_all_the_same():
    buffer = LeanReplayBuffer(900, NOISE, ACTIONS, device="cpu", n_envs=9, memory_limit="90kB", when_full="forget")
    with pytest.raises(MemoryLimitReached, match=r"but 1 row and the other arrays take .*compact=True$"):
        _write(buffer, 100)


@pytest.mark.parametrize("n_envs", [1, 3])
def test_hindsight_forgets_whole_episodes(n_envs):
    env = DummyVecEnv([lambda: BitFlippingEnv(n_bits=300, continuous=True, max_steps=17)] * n_envs)
    buffer = LeanHerReplayBuffer(
        700 * n_envs,
        env.observation_space,
        env.action_space,
        env,
        device="cpu",
        n_envs=n_envs,
        memory_limit=n_envs * (700 * (300 * 4 + 40) + 60_000),
        when_full="forget",
    )
    seen, random = env.reset(), np.random.default_rng(0)
    for step in range(2000):
        actions = random.choice([-1, 1], size=(n_envs, 300)).astype(np.float32)
        after, rewards, dones, infos = env.step(actions)
        buffer.add(seen, after, actions, rewards, dones, infos)
        seen = after
        if step > 100 and step % 50 == 0:
            held = (buffer.ep_length > 0).nonzero()[0]
            ages = (buffer.pos - 1 - held) % buffer.buffer_size
            assert ages.max() < buffer.size() - buffer.forgotten
            buffer.sample(64)
    assert buffer.forgotten > 0


def test_a_limit_below_the_other_arrays_is_refused_at_once():
    with pytest.raises(MemoryLimitReached, match=r"must leave room for the .* of 100,000 rows"):
        LeanReplayBuffer(100_000, NOISE, ACTIONS, device="cpu", memory_limit="1MB")


def test_options_that_make_no_sense_are_refused():
    with pytest.raises(LeanBufferError, match="when_full must be 'error' or 'forget', but got 'panic'"):
        LeanReplayBuffer(10, NOISE, ACTIONS, when_full="panic")
    with pytest.raises(InputError, match="16GB"):
        LeanReplayBuffer(10, NOISE, ACTIONS, memory_limit="much")
