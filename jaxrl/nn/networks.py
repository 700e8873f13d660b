"""Network bodies (flax linen) and the encoding of observations into vectors.

Modules are hashable: their settings are numbers, strings and tuples. All take any leading batch shape.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree, Shaped

from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple

SQRT2 = math.sqrt(2)

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": nn.relu,
    "leaky_relu": nn.leaky_relu,
    "silu": nn.silu,
    "gelu": nn.gelu,
    "elu": nn.elu,
}


def activation_function(name: str) -> Callable[[Array], Array]:
    """The activation called `name`. Raises ValueError for an unknown one."""
    if name not in _ACTIVATIONS:
        raise ValueError(f"activation={name!r} is unknown; use one of {', '.join(_ACTIVATIONS)}.")
    return _ACTIVATIONS[name]


Network = Any
"""A network as `own` describes it: a flax.linen module, or an object with the same `init` and `apply`."""


def own(argument: str, module: Network | None, *methods: str) -> Any:
    """Checks the network that a user gave to `make` as `argument`, and returns it; None stays None.

    A network is a flax.linen module with `__call__` and these `methods`, or any hashable object with the methods
    `init(key, *inputs)` and `apply(weights, *inputs, method=None, rngs=None, mutable=False)` of one: `method` is a name
    of `methods`, and with `mutable` the result is a pair, the outputs and the sown intermediates.

    Raises TypeError that names what is missing.
    """
    if module is None:
        return None
    linen = isinstance(module, nn.Module)
    lacking = [name for name in ("init", "apply", *(methods if linen else ())) if not hasattr(module, name)]
    name, called = (module if isinstance(module, type) else type(module)).__name__, ", ".join((*methods, "__call__"))
    wanted = f"a flax.linen module with {called}, or an object with init and apply"
    if isinstance(module, type):
        raise TypeError(f"{argument}={name} is a class; it is an instance of one, {name}(...): {wanted}.")
    if lacking:
        raise TypeError(
            f"{argument} is {wanted}; {name} has no {' and no '.join(lacking)}. jaxrl.interop.neural has adapters for "
            "modules of nnx and equinox (Nnx, Equinox), and for plain functions (Functions)."
        )
    try:
        hash(module)
    except TypeError as error:
        raise TypeError(f"{argument}: a {name} is static, so it must be hashable ({error}).") from error
    return module


def orthogonal(scale: float = 1.0) -> Callable[..., Array]:
    """Initialiser: `scale` times a uniformly distributed matrix with orthonormal rows or columns (Saxe et al. 2014).

    Columns are the last axis of the shape, rows all others together, as in flax. Raises ValueError for fewer than two
    axes. Implemented as Gram-Schmidt applied twice (error below 1e-6), because the LAPACK-backed QR of
    `jax.nn.initializers.orthogonal` can deadlock XLA's CPU thread pool when batched.
    """

    def init(key: Key[Array, ""], shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        if len(shape) < 2:
            raise ValueError(f"orthogonal: shape {tuple(shape)} has fewer than two axes.")
        rows, columns = math.prod(shape[:-1]), shape[-1]
        few, many = min(rows, columns), max(rows, columns)
        # In float64 where it is enabled: float32 weights of a vmapped and of a single run are then the same.
        vectors = jax.random.normal(key, (few, many), jnp.promote_types(dtype, jnp.result_type(float)))

        def add(basis, inputs):
            i, v = inputs
            for _ in range(2):
                v = v - (basis @ v) @ basis
            return basis.at[i].set(v / jnp.sqrt(jnp.sum(v * v))), None

        basis, _ = jax.lax.scan(add, jnp.zeros_like(vectors), (jnp.arange(few), vectors))
        return (scale * (basis if rows == few else basis.T)).reshape(shape).astype(dtype)

    return init


def rows_dot(x: Array, kernel: Array, dimension_numbers: Any, **settings: Any) -> Array:
    """x @ kernel for `flax.linen.Dense`, with all leading axes of x merged into one.

    XLA on CPU transposes and copies the cotangent of a product with a sequence (T, N, features): the gradient of a
    layer of 1,024 took 1.4 times as long (`benchmarks/recurrent_gradients.py`).
    """
    if x.ndim < 3:
        return jax.lax.dot_general(x, kernel, dimension_numbers, **settings)
    rows = x.reshape(-1, x.shape[-1])
    return jax.lax.dot_general(rows, kernel, (((1,), (0,)), ((), ())), **settings).reshape(*x.shape[:-1], -1)


Dense = functools.partial(nn.Dense, dot_general=rows_dot)
"""`flax.linen.Dense` with fast gradients for sequences."""


class MLP(nn.Module):
    """Dense layers with orthogonal weights. `out=None` leaves out the linear head and returns the last hidden layer.

    The share of positive activations of each hidden layer is sown as an intermediate: see `active_units`.
    """

    hidden: tuple[int, ...]
    out: int | None
    activation: str = "tanh"
    hidden_scale: float = SQRT2
    out_scale: float = 1.0
    layer_norm: bool = False

    @nn.compact
    def __call__(self, x: Float[Array, "*batch features"]) -> Float[Array, "*batch out"]:
        activate = activation_function(self.activation)
        for width in self.hidden:
            x = Dense(width, kernel_init=orthogonal(self.hidden_scale))(x)
            x = activate(nn.LayerNorm()(x) if self.layer_norm else x)
            self.sow("intermediates", "active", jnp.mean(x > 0))
        return x if self.out is None else Dense(self.out, kernel_init=orthogonal(self.out_scale))(x)


def convolve(
    x: Float[Array, "*batch height width channels"],
    kernel: Float[Array, "kernel_height kernel_width channels features"],
    stride: int = 1,
    padding: str = "VALID",
) -> Float[Array, "*batch out_height out_width features"]:
    """Convolution of images. `padding` is "VALID" or "SAME".

    Small patches are gathered into a matrix and multiplied (im2col): for a 3x3 kernel on 4 channels that is 2.5 times
    faster on a CPU than XLA's convolution, forward and backward. The same holds under `vmap` over weights, where XLA's
    becomes a grouped convolution.
    """
    *batch, height, width, channels = x.shape
    kh, kw, _, features = kernel.shape
    x = x.reshape(-1, height, width, channels)
    if kh * kw * channels > 64:
        y = jax.lax.conv_general_dilated(
            x, kernel, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    else:
        pads = jax.lax.padtype_to_pads((height, width), (kh, kw), (stride, stride), padding)
        x = jnp.pad(x, ((0, 0), *pads, (0, 0)))
        last = x.shape[1] - kh + 1, x.shape[2] - kw + 1
        x = jnp.stack([x[:, i : i + last[0] : stride] for i in range(kh)], 3)
        x = jnp.stack([x[:, :, j : j + last[1] : stride] for j in range(kw)], 4)  # (N, H, W, kh, kw, channels)
        y = x.reshape(*x.shape[:3], -1) @ kernel.reshape(-1, features)
    return y.reshape(*batch, *y.shape[1:])


class CNN(nn.Module):
    """Convolutions over images (..., H, W, C), flattened at the end. uint8 images are scaled from 0..255 to 0..1.

    MinAtar's is features=(16,), kernels=(3,), strides=(1,); the Nature DQN's is (32, 64, 64), (8, 4, 3), (4, 2, 1).
    """

    features: tuple[int, ...]
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str = "VALID"
    activation: str = "relu"
    layer_norm: bool = False  # over the features of each pixel

    @nn.compact
    def __call__(self, x: Shaped[Array, "*batch height width channels"]) -> Float[Array, "*batch flat"]:
        activate = activation_function(self.activation)
        batch = x.shape[:-3]
        x = x / jnp.float32(255) if x.dtype == jnp.uint8 else x.astype(jnp.promote_types(x.dtype, jnp.float32))
        for i, (features, size, stride) in enumerate(zip(self.features, self.kernels, self.strides, strict=True)):
            kernel = self.param(f"kernel_{i}", orthogonal(SQRT2), (size, size, x.shape[-1], features))
            bias = self.param(f"bias_{i}", nn.initializers.zeros, (features,))
            x = convolve(x, kernel, stride, self.padding) + bias
            x = activate(nn.LayerNorm()(x) if self.layer_norm else x)
        return x.reshape(*batch, -1)


class Ensemble(nn.Module):
    """`size` copies of `member` with separate weights on the same inputs; outputs gain a leading axis K."""

    member: nn.Module
    size: int

    @nn.compact
    def __call__(self, *args: Any) -> Any:
        members = nn.vmap(
            lambda member, *args: member(*args),
            in_axes=None,  # pyright: ignore[reportArgumentType]
            axis_size=self.size,
            variable_axes={"params": 0, "intermediates": 0},
            split_rngs={"params": True},
        )
        return members(self.member, *args)


class Encoder(nn.Module):
    """3x3 convolutions of stride 1 on images, which are Boxes (H, W, C), then `encode`; `conv=()`: `encode` alone.

    Integer images are divided by the highest value of their space. Raises ValueError where the observation has no
    image, or one too small: each convolution removes a pixel at every edge.
    """

    observation_space: Space
    conv: tuple[int, ...]  # features of each convolution
    activation: str
    privileged: bool = False
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: PyTree[Shaped[Array, "..."]]) -> Float[Array, "*batch features"]:
        spaces, n = _parts(self.observation_space, self.privileged), len(self.conv)
        if not n:
            return encode(self.observation_space, obs, self.privileged)
        images = [space for space in spaces if _is_image(space)]
        if not images or min(min(space.shape[:2]) for space in images) <= 2 * n:
            raise ValueError(f"conv={self.conv} needs images larger than {2 * n} x {2 * n}; there are {images}.")
        vectors = []
        for space, x in zip(spaces, _parts(self.observation_space, self.privileged, obs), strict=True):
            if _is_image(space):
                cnn = CNN(self.conv, (3,) * n, (1,) * n, activation=self.activation, layer_norm=self.layer_norm)
                scale = jnp.max(space.high) if jnp.issubdtype(x.dtype, jnp.integer) else 1
                vectors.append(cnn(x.astype(jnp.float32) / scale))
            else:
                vectors.append(_vector(space, x))
        return jnp.concatenate(vectors, -1)


def _is_image(space: Space) -> bool:
    return isinstance(space, Box) and len(space.shape) == 3


def _are_pixels(space: Space) -> bool:
    return isinstance(space, Box) and space.dtype == jnp.uint8 and bool(np.all(np.asarray(space.high) == 255))


class ActorCritic(nn.Module):
    """Two separate MLPs: the default network of on-policy methods. A network in its place needs the same methods."""

    observation_space: Space
    num_outputs: int
    continuous: bool
    hidden: tuple[int, ...]
    activation: str
    conv: tuple[int, ...] = ()

    def setup(self) -> None:
        self.actor_encoder = Encoder(self.observation_space, self.conv, self.activation)
        self.critic_encoder = Encoder(self.observation_space, self.conv, self.activation, privileged=True)
        self.actor_mlp = MLP(self.hidden, self.num_outputs, self.activation, out_scale=0.01)
        self.critic_mlp = MLP(self.hidden, 1, self.activation, out_scale=1.0)
        if self.continuous:
            self.log_std = self.param("log_std", nn.initializers.zeros, (self.num_outputs,))

    def actor(self, obs: Any) -> Any:
        """Logits (..., n), or for a Box `(mean, log_std)` in units of the box; `obs` is a whole observation."""
        out = self.actor_mlp(self.actor_encoder(obs))
        return (out, self.log_std) if self.continuous else out

    def critic(self, obs: Any) -> Float[Array, "..."]:
        """Values (...) of whole observations, with their privileged part."""
        return self.critic_mlp(self.critic_encoder(obs))[..., 0]

    def __call__(self, obs: Any) -> Any:
        return self.actor(obs), self.critic(obs)


class PolicyNetwork(nn.Module):
    """The default network of searches over weights: from observations (..., *) to logits (..., n) or means in units of
    the box."""

    observation_space: Space
    num_outputs: int
    hidden: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, obs: Any) -> Float[Array, "... n"]:
        return MLP(self.hidden, self.num_outputs, self.activation)(encode(self.observation_space, obs))


def active_units(intermediates: PyTree) -> Float[Array, ""]:
    """The share of active (positive) hidden units over a batch and all layers, a measure of plasticity.

    `intermediates` are those of `network.apply(..., mutable="intermediates")` for networks made of `MLP`s (fraction of
    active units, Ma et al. 2024, "Revisiting plasticity in visual RL").
    """
    # The mean of the layers' shares: each layer counts the same, whatever its width.
    return jnp.mean(jnp.stack([jnp.mean(x) for x in jax.tree.leaves(intermediates)]))


MOST_CODES = 64
"""Values of an integer of a Box up to which they may be taken for categories."""


def encode(
    space: Space, obs: PyTree[Shaped[Array, "..."]], privileged: bool = False, categorical: bool = False
) -> Array:
    """One vector (..., F) of an observation of `space` with any leading batch shape, F being `encoded_size`.

    Boxes are flattened, Discrete and MultiDiscrete one-hot. Integers become float32: pixels (uint8 of 0..255) are
    divided by 255, as Mnih et al. (2015) do; others, such as MiniGrid's codes, keep their values. The entries of a Dict
    are in sorted order. A top-level Dict's `action_mask` is left out, and its `privileged` entry unless asked for.
    With `categorical` the integers of a Box are one-hot, too, unless they have more than `MOST_CODES` values.

    Raises ValueError where nothing is left.
    """
    pairs = zip(_parts(space, privileged), _parts(space, privileged, obs), strict=True)
    parts = [_vector(s, x, categorical) for s, x in pairs]
    if not parts:
        raise ValueError(f"encode: {space!r} has nothing to see but an action mask or what is privileged.")
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, -1)


def encoded_size(space: Space, privileged: bool = False) -> int:
    """The length F of the vectors of `encode`. Raises TypeError for an unknown kind of space."""
    return sum(_size(s) for s in _parts(space, privileged))


def one_hot_columns(space: Space, privileged: bool = False, categorical: bool = False) -> np.ndarray:
    """(F,) bool: which entries of the vectors of `encode` are zero or one. Raises TypeError for an unknown space."""
    columns = []
    for part in _parts(space, privileged):
        codes = _codes(part) if categorical else None
        one_hot = isinstance(part, Discrete | MultiDiscrete) or part.dtype == jnp.bool_ or codes is not None
        columns.append(np.full(_size(part) * (1 if codes is None else codes[1]), one_hot))
    return np.concatenate([np.zeros(0, bool), *columns])


def _codes(space: Space) -> tuple[int, int] | None:
    """`(lowest, how many)` values of each integer of a Box that are few enough for categories."""
    if not isinstance(space, Box) or not jnp.issubdtype(space.dtype, jnp.integer):
        return None
    low = int(np.min(space.low))
    many = int(np.max(space.high)) - low + 1
    return (low, many) if many <= MOST_CODES else None


def _parts(space: Space, privileged: bool, values: Any = None) -> list[Any]:
    """The leaf spaces of an observation space or, given `values` of the same structure, the leaf values."""

    def walk(space: Space, value: Any, dropped: tuple[str, ...] = ()) -> list[Any]:
        if isinstance(space, Dict):
            children = [(s, name) for name, s in sorted(space.spaces.items()) if name not in dropped]
        elif isinstance(space, Tuple):
            children = [(s, i) for i, s in enumerate(space.spaces)]
        else:
            return [space if values is None else value]
        return [leaf for s, at in children for leaf in walk(s, None if values is None else value[at])]

    return walk(space, values, ("action_mask",) if privileged else ("action_mask", "privileged"))


def _size(space: Space) -> int:
    if isinstance(space, Discrete):
        return space.n
    if isinstance(space, MultiDiscrete):
        return sum(space.nvec)
    if isinstance(space, Box):
        return math.prod(space.shape)
    raise TypeError(f"encode: {space!r} is not a Box, Discrete or MultiDiscrete.")


def _vector(space: Space, x: Array, categorical: bool = False) -> Array:
    if isinstance(space, Discrete):
        return jax.nn.one_hot(x, space.n, dtype=jnp.float32)
    if isinstance(space, MultiDiscrete):
        one_hots = [jax.nn.one_hot(x[..., i], n, dtype=jnp.float32) for i, n in enumerate(space.nvec)]
        return jnp.concatenate(one_hots, -1)
    if categorical and (codes := _codes(space)) is not None:
        batch = x.shape[: x.ndim - len(space.shape)]
        x = jax.nn.one_hot(x.astype(jnp.int32) - codes[0], codes[1], dtype=jnp.float32)
        return x.reshape(*batch, _size(space) * codes[1])
    x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.float32)
    x = x / 255 if _are_pixels(space) else x
    batch = x.shape[: x.ndim - len(space.shape)]
    return x if len(space.shape) == 1 else x.reshape(*batch, _size(space))
