"""What the vector-environment wrappers make of an observation before it reaches policy and buffer."""

from __future__ import annotations

from dataclasses import replace

from rlmem.errors import InputError
from rlmem.run.model import Env
from rlmem.run.spaces import Box, Dict, Leaf, Space, is_channels_first, is_image


def stored_observation(env: Env) -> Space:
    """Return the observation as policy and buffer see it: stacked, channels first, float when normalised."""
    if env.observation is None:
        raise InputError("the environment's spaces have not been read yet")
    return _per_leaf(env.observation, env)


def single_observation(env: Env) -> Space:
    """Return the observation without its frame stack: what is new in it from one step to the next, at most."""
    return stored_observation(replace(env, frame_stack=1))


def _per_leaf(space: Space, env: Env) -> Space:
    if isinstance(space, Dict):
        return Dict(items=tuple((key, _per_leaf(item, env)) for key, item in space.items))
    if isinstance(space, Box):
        return _wrap(space, env)
    return space


def _wrap(box: Box, env: Env) -> Leaf:
    stacked = _stack(box, env.frame_stack)
    normalised = _normalise(stacked) if env.normalize else stacked
    # Stable-Baselines3 transposes channels-last images by itself unless told not to. What VecNormalize has made
    # float32 is no image to it any more: there only a VecTransposeImage of the user's own, further in, does.
    image = {None: is_image(normalised), True: is_image(stacked), False: False}[env.transpose_images]
    return _transpose(normalised, image=image)


def _stack(box: Box, frames: int) -> Box:
    if frames == 1 or not box.shape:
        return box
    axis = 0 if is_image(box) and is_channels_first(box) else len(box.shape) - 1
    shape = tuple(size * frames if index == axis else size for index, size in enumerate(box.shape))
    return replace(box, shape=shape)


def _normalise(box: Box) -> Box:
    """VecNormalize changes the space of images only; other spaces keep their dtype."""
    return replace(box, dtype="float32", low=-10.0, high=10.0) if is_image(box) else box


def _transpose(box: Box, *, image: bool) -> Box:
    if not image or is_channels_first(box):
        return box
    height, width, channels = box.shape
    return replace(box, shape=(channels, height, width))
