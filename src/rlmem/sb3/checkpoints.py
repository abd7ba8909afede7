"""The callback that saves everything a training is, in the background, so that it can go on as if never stopped."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from rlmem.errors import InputError, StoreUnavailable
from rlmem.sb3.training_state import (
    Episode,
    begin_episode,
    contents_of,
    end_episodes,
    episode_of,
    metadata_of,
    seed_of,
)
from rlmem.store import Saver, SaveWarning, Store

_STOPPED = "training was stopped inside a rollout, and what was collected in it is lost"


class Checkpoints(BaseCallback):
    """Saves a snapshot before the first rollout after every ``every`` timesteps, and at the end.

    ``url`` is a folder or a bucket. The newest ``keep`` snapshots are kept (None: all), and besides the first of every
    ``keep_every`` timesteps. Environments that cannot be put back into the middle of an episode begin a new one when
    training is resumed; with ``new_episode`` they also do at each save, so that both go on alike.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        every: int = 100_000,
        keep: int | None = 3,
        keep_every: int | None = None,
        save_buffer: bool = True,
        new_episode: bool = False,
        metadata: Mapping[str, Any] | None = None,
        options: Mapping[str, str] | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        if every < 1:
            raise InputError(f"every must be 1 timestep or more, but got {every}")
        self.url, self.every, self.save_buffer, self.new_episode = url, every, save_buffer, new_episode
        self._keep, self._keep_every, self._options = keep, keep_every, options
        self._metadata = dict(metadata or {})
        self._saver: Saver | None = None
        self._seen = 0
        self._saved: int | None = None
        self._collecting = False

    @property
    def saver(self) -> Saver:
        """What writes the snapshots; there once training has begun."""
        if self._saver is None:
            store = Store.open(self.url, create=True, options=self._options)
            self._saver = Saver(store, keep=self._keep, keep_every=self._keep_every)
        return self._saver

    # --- what learn calls --------------------------------------------------------------------------------------------

    def _init_callback(self) -> None:
        _ = self.saver  # a store that cannot be opened is better known before training than an hour into it

    def _on_training_start(self) -> None:
        self._seen, self._saved, self._collecting = self.model.num_timesteps, None, False

    def _on_rollout_start(self) -> None:
        now = self.model.num_timesteps
        if now // self.every > self._seen // self.every:
            self.save()
        self._seen, self._collecting = now, True

    def _on_rollout_end(self) -> None:
        self._collecting = False

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        if self._saved != self.model.num_timesteps:
            self._write(self._episode_at_the_end())
        try:
            self.saver.wait()
        except StoreUnavailable as error:  # raised, it would take the trained model with it
            warnings.warn(
                f"the last snapshot was not written: {error}; the model is trained", SaveWarning, stacklevel=3
            )

    # --- saving ------------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Save now; only to be called between two rollouts."""
        if not self.new_episode:
            self._write(episode_of(self.model))
        else:
            seed = seed_of(self.model)
            end_episodes(self.model)
            self._write(Episode(seed=seed))
            begin_episode(self.model, seed)
        if self.model.use_sde:
            _draw_noise_again(self.model)

    def _episode_at_the_end(self) -> Episode:
        if self._collecting:
            return Episode(seed=seed_of(self.model), why=_STOPPED)
        return Episode(seed=seed_of(self.model)) if self.new_episode else episode_of(self.model)

    def _write(self, episode: Episode) -> None:
        model, save_buffer = self.model, self.save_buffer
        metadata = metadata_of(model, episode, save_buffer=save_buffer) | self._metadata
        contents = contents_of(model, episode, save_buffer=save_buffer)
        self.saver.save(contents, step=int(model.num_timesteps), metadata=metadata)
        self._saved = model.num_timesteps
        if self.verbose >= 1:
            self.logger.info(f"saving step {model.num_timesteps} to {self.saver.store.url}")


def _draw_noise_again(model: Any) -> None:
    """Draw gSDE's exploration matrix anew: a resumed training draws it here too, from the same random state."""
    owner = model.actor if getattr(model, "replay_buffer", None) is not None else model.policy
    owner.reset_noise(model.env.num_envs)
