"""A swarm of quadrotors, each a column of the same NumPy arrays: thousands of agents in one process, without workers.

What an agent sees is what its flight computer has: the last 300 readings of its IMU (accelerometer and gyroscope, six
channels) and four targets. It flies by thrust and three body rates, ten control steps a second, and its IMU reads ten
times a control step: of two windows that follow each other, 290 readings of 300 are the same.

`DroneSwarm` is the environment, `DroneSwarmVecEnv` shows it to Stable-Baselines3 as so many environments.
Run this file to see how fast it is on your machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

Floats: TypeAlias = NDArray[np.float32]
Observation: TypeAlias = dict[str, Floats]

CHANNELS = 6  # accelerometer x, y, z in m/s², gyroscope x, y, z in rad/s
TARGETS = 4  # the way to the target point in the drone's own frame (m), and how far its heading is off (rad)
ACTIONS = 4  # thrust, and the rates of roll, pitch and yaw; each from -1 to 1, and thrust 0 hovers


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """What a drone is like, and how long it flies. Times in s, lengths in m, angles in rad, forces per kg."""

    history: int = 300
    samples_per_step: int = 10
    episode_steps: int = 100
    sample_s: float = 0.01
    gravity: float = 9.81
    thrust_lag_s: float = 0.04
    rate_lag_s: float = 0.06
    most_rates: tuple[float, float, float] = (4.0, 4.0, 2.0)
    drag: tuple[float, float, float] = (0.30, 0.30, 0.15)
    accelerometer_noise: float = 0.08
    accelerometer_bias: float = 0.05
    gyroscope_noise: float = 0.01
    gyroscope_bias: float = 0.005
    start_height_m: float = 5.0
    target_within_m: float = 2.0
    lost_beyond_m: float = 10.0

    def __post_init__(self) -> None:
        if self.history % self.samples_per_step:
            raise ValueError(
                f"history must be a multiple of samples_per_step, but got {self.history} and {self.samples_per_step}"
            )


class DroneSwarm:
    """N drones that fly each for itself; every array has all of them.

    An agent whose episode ends begins the next one within the same step: the observation that `step` returns for it is
    the new episode's first, and the ended one's last is in ``infos``. At a reset the drone hovers, level and at rest,
    and its whole history is the **resting reading**: gravity and the IMU's own bias, without noise, 300 times.
    """

    def __init__(self, n_agents: int, *, flight: Flight | None = None, seed: int | None = None) -> None:
        self.n_agents, self.flight = n_agents, flight or Flight()
        self.observation_space = spaces.Dict(
            {
                "imu": spaces.Box(-np.inf, np.inf, (self.flight.history, CHANNELS), np.float32),
                "targets": spaces.Box(-np.inf, np.inf, (TARGETS,), np.float32),
            }
        )
        self.action_space = spaces.Box(-1, 1, (ACTIONS,), np.float32)

        # Components first, agents last: each component of all drones lies together in memory.
        self.position = _noughts(3, n_agents)
        self.velocity = _noughts(3, n_agents)
        self.attitude = _noughts(4, n_agents)  # a unit quaternion, body to world, the real part first
        self.rates = _noughts(3, n_agents)
        self.thrust = _noughts(n_agents)
        self.target = _noughts(3, n_agents)
        self.target_heading = _noughts(n_agents)
        self.bias = _noughts(CHANNELS, n_agents)
        self.returns = _noughts(n_agents)
        self.age: NDArray[np.int32] = np.zeros(n_agents, np.int32)

        # The one large array, 7,200 B an agent: a ring whose oldest reading, of every agent alike, is at `_oldest`.
        self._ring = _noughts(n_agents, self.flight.history, CHANNELS)
        self._oldest = 0
        self._rng = np.random.default_rng(seed)

    @property
    def nbytes(self) -> int:
        """What the environment holds: the ring and the state of all drones."""
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray))

    # --- the episode -----------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None) -> Observation:
        """Begin an episode for every agent, and return what they see."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._oldest = 0
        self._begin(np.arange(self.n_agents))
        return self.observe()

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Observation, Floats, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Fly one control step: observations, rewards, terminated, truncated and, where any ended, how they did.

        ``infos`` is empty, or has for the ``agents`` whose episode ended their ``final_observation`` (arrays as long
        as ``agents``), ``episode_return`` and ``episode_length``.
        """
        actions = self._checked(actions)
        self._remember(self._fly(actions))
        self.age += 1
        distance = np.linalg.norm(self.target - self.position, axis=0)
        terminated = self._crashed() | (distance > self.flight.lost_beyond_m)
        truncated = ~terminated & (self.age >= self.flight.episode_steps)
        rewards = self._rewards(distance, actions, terminated)
        self.returns += rewards
        infos = self._end(np.flatnonzero(terminated | truncated))
        return self.observe(), rewards, terminated, truncated, infos

    def observe(self, agents: NDArray[np.intp] | None = None) -> Observation:
        """Return what some agents see, or all of them, in arrays of their own."""
        chosen: Any = slice(None) if agents is None else agents
        ring, newest = self._ring[chosen], self.flight.history - self._oldest
        imu = np.empty(ring.shape, np.float32)
        imu[:, :newest] = ring[:, self._oldest :]
        imu[:, newest:] = ring[:, : self._oldest]
        return {"imu": imu, "targets": self._targets(chosen)}

    def _checked(self, actions: NDArray[Any]) -> Floats:
        actions = np.asarray(actions, np.float32)
        if actions.shape != (self.n_agents, ACTIONS) or not np.isfinite(actions).all():
            raise ValueError(
                f"actions must be finite and of shape {(self.n_agents, ACTIONS)}, but got shape {actions.shape}"
            )
        return np.clip(actions, -1, 1)

    def _begin(self, agents: NDArray[np.intp]) -> None:
        """Put drones at their start: hovering, level and at rest, with a new target and a new bias of the IMU."""
        rng, flight, n = self._rng, self.flight, len(agents)
        for state in (self.position, self.velocity, self.rates, self.attitude):
            state[:, agents] = 0
        self.position[2, agents] = flight.start_height_m
        self.attitude[0, agents] = 1
        self.thrust[agents] = flight.gravity
        self.target[:, agents] = rng.uniform(-1, 1, (3, n)) * flight.target_within_m
        self.target[2, agents] += flight.start_height_m
        self.target_heading[agents] = rng.uniform(-np.pi / 2, np.pi / 2, n)
        self.bias[:3, agents] = rng.standard_normal((3, n)) * flight.accelerometer_bias
        self.bias[3:, agents] = rng.standard_normal((3, n)) * flight.gyroscope_bias
        self.age[agents] = 0
        self.returns[agents] = 0
        resting = self.bias[:, agents].T.copy()
        resting[:, 2] += flight.gravity
        self._ring[agents] = resting[:, None]  # every place of the ring is alike, so where it begins does not matter

    def _end(self, agents: NDArray[np.intp]) -> dict[str, Any]:
        """Note how the episodes of some agents ended, and begin their next."""
        if not agents.size:
            return {}
        infos = {
            "agents": agents,
            "final_observation": self.observe(agents),
            "episode_return": self.returns[agents],
            "episode_length": self.age[agents],
        }
        self._begin(agents)
        return infos

    # --- the flight ------------------------------------------------------------------------------------------------

    def _fly(self, actions: Floats) -> Floats:
        """Move every drone on by one control step; return what the IMUs read on the way: agents × samples × 6."""
        flight, step_s = self.flight, self.flight.sample_s
        thrust = (1 + actions[:, 0]) * flight.gravity
        rates = actions[:, 1:].T * _column(flight.most_rates)
        drag = _column(flight.drag)
        readings: Floats = np.empty((flight.samples_per_step, CHANNELS, self.n_agents), np.float32)
        for reading in readings:
            self.thrust += (thrust - self.thrust) * (step_s / flight.thrust_lag_s)
            self.rates += (rates - self.rates) * (step_s / flight.rate_lag_s)
            # What an accelerometer feels is all but gravity: thrust along its own z axis, and the drag of the air.
            force = -drag * rotated_back(self.attitude, self.velocity)
            force[2] += self.thrust
            acceleration = rotated(self.attitude, force)
            acceleration[2] -= flight.gravity
            self.velocity += acceleration * step_s
            self.position += self.velocity * step_s
            self.attitude = turned(self.attitude, self.rates * step_s)
            reading[:3], reading[3:] = force, self.rates
        readings += self.bias
        return readings.transpose(2, 0, 1) + self._noise()

    def _noise(self) -> Floats:
        flight = self.flight
        noise = self._rng.standard_normal((self.n_agents, flight.samples_per_step, CHANNELS), np.float32)
        noise *= np.repeat(np.float32([flight.accelerometer_noise, flight.gyroscope_noise]), 3)
        return noise

    def _remember(self, readings: Floats) -> None:
        """Write the newest readings over the oldest: all that a step costs of the history."""
        end = self._oldest + self.flight.samples_per_step
        self._ring[:, self._oldest : end] = readings
        self._oldest = end % self.flight.history

    def _targets(self, agents: Any) -> Floats:
        way = rotated_back(self.attitude[:, agents], self.target[:, agents] - self.position[:, agents])
        real, x, y, z = self.attitude[:, agents]
        heading = np.arctan2(2 * (real * z + x * y), 1 - 2 * (y * y + z * z))
        off = self.target_heading[agents] - heading
        return np.vstack([way, np.arctan2(np.sin(off), np.cos(off))]).T.copy()

    def _crashed(self) -> NDArray[np.bool_]:
        """Whether drones hit the ground or turned over."""
        _, x, y, _ = self.attitude
        upright = 1 - 2 * (x * x + y * y)
        return (self.position[2] < 0) | (upright < 0)

    def _rewards(self, distance: Floats, actions: Floats, terminated: NDArray[np.bool_]) -> Floats:
        """One a step at the target, less away from it and for hard turns; ten are lost with the drone."""
        near = 1 - np.tanh(distance / 2)
        effort = 0.02 * np.square(actions[:, 1:]).sum(axis=1)
        return (near - effort - 10 * terminated).astype(np.float32)


# --- rotations, components first --------------------------------------------------------------------------------------


def rotated(attitude: Floats, vector: Floats) -> Floats:
    """Return vectors in the drones' frames as the world sees them."""
    real, axis = attitude[0], attitude[1:]
    twice = 2 * _cross(axis, vector)
    return vector + real * twice + _cross(axis, twice)


def rotated_back(attitude: Floats, vector: Floats) -> Floats:
    """Return vectors in the world as the drones see them."""
    real, axis = attitude[0], attitude[1:]
    twice = 2 * _cross(axis, vector)
    return vector - real * twice + _cross(axis, twice)


def turned(attitude: Floats, angles: Floats) -> Floats:
    """Return attitudes after small turns about the drones' own axes."""
    real, axis, half = attitude[0], attitude[1:], angles / 2
    after = np.empty_like(attitude)
    after[0] = real - (axis * half).sum(axis=0)
    after[1:] = axis + real * half + _cross(axis, half)
    after /= np.sqrt(np.square(after).sum(axis=0))
    return after


def _cross(one: Floats, other: Floats) -> Floats:
    (a, b, c), (x, y, z) = one, other
    out = np.empty_like(other)
    out[0], out[1], out[2] = b * z - c * y, c * x - a * z, a * y - b * x
    return out


def _noughts(*shape: int) -> Floats:
    return np.zeros(shape, np.float32)


def _column(values: Sequence[float]) -> Floats:
    return np.array(values, np.float32)[:, None]


# --- for Stable-Baselines3 --------------------------------------------------------------------------------------------


class DroneSwarmVecEnv(VecEnv):
    """A swarm as Stable-Baselines3 sees it: each agent an environment. For PPO with ``MultiInputPolicy``."""

    def __init__(self, swarm: DroneSwarm) -> None:
        self.swarm = swarm
        self._actions: NDArray[Any] = _noughts(swarm.n_agents, ACTIONS)
        super().__init__(swarm.n_agents, swarm.observation_space, swarm.action_space)

    def reset(self) -> Any:
        """Begin all episodes; the first of the seeds given to `seed` is the swarm's."""
        observation = self.swarm.reset(seed=self._seeds[0])
        self._reset_seeds()
        self._reset_options()
        return observation

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep the actions until `step_wait`: there is nobody to hand them to."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Fly a step. An ended episode's last observation and its length and return go where SB3 looks for them."""
        observation, rewards, terminated, truncated, ended = self.swarm.step(self._actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for index, agent in enumerate(ended.get("agents", ())):
            infos[agent] = {
                "terminal_observation": {name: array[index] for name, array in ended["final_observation"].items()},
                "TimeLimit.truncated": bool(truncated[agent]),
                "episode": {"r": float(ended["episode_return"][index]), "l": int(ended["episode_length"][index])},
            }
        return observation, rewards, terminated | truncated, infos

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the swarm, once for each agent asked for; there is nothing to render."""
        value = None if attr_name == "render_mode" else getattr(self.swarm, attr_name)
        return [value for _ in self._agents(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuse: the agents have no attributes of their own."""
        raise AttributeError(f"{attr_name} must be set on the swarm: its agents have no attributes of their own")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call a method of the swarm once, and return its result for each agent asked for."""
        result = getattr(self.swarm, method_name)(*args, **kwargs)
        return [result for _ in self._agents(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Say that no agent is wrapped."""
        return [False for _ in self._agents(indices)]

    def _agents(self, indices: Any) -> Iterable[int]:
        return self._get_indices(indices)  # type: ignore[no-any-return]


def main() -> None:
    """Fly swarms of two sizes with random actions, and say how fast and how large they are."""
    for n_agents in (1_000, 10_000):
        swarm = DroneSwarm(n_agents, seed=0)
        swarm.reset()
        rng = np.random.default_rng(0)
        actions = rng.uniform(-0.2, 0.2, (20, n_agents, ACTIONS)).astype(np.float32)
        began = time.perf_counter()
        for action in actions:
            swarm.step(action)
        per_s = len(actions) / (time.perf_counter() - began)
        print(
            f"{n_agents:,} agents: {per_s:,.1f} steps/s, {per_s * n_agents:,.0f} agent steps/s; "
            f"the environment holds {swarm.nbytes / n_agents:,.0f} B an agent"
        )


if __name__ == "__main__":
    main()
