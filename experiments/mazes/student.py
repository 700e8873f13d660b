"""The network of JaxUED's students in `maze_dr.py` and `maze_plr.py`."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.algos import ppo_rnn
from jaxrl.nn.networks import CNN, MLP, Dense, orthogonal
from jaxrl.nn.recurrent import Recurrent


class MazeActorCritic(nn.Module):
    """Image and direction, an LSTM, then a hidden layer and a head for actor and critic each."""

    num_actions: int = 7
    rnn_size: int = 256
    shared: bool = True

    def initial_carry(self, batch_shape: tuple[int, ...]) -> Any:
        return Recurrent(self.rnn_size, "lstm", parent=None).initial_carry(batch_shape)

    @nn.compact
    def __call__(self, hidden: ppo_rnn.Hidden, obs: Any, start: Any) -> tuple[ppo_rnn.Hidden, Any, Array]:
        image = CNN((16,), (3,), (1,))(obs["image"].astype(jnp.float32) / 10)
        direction = Dense(5, kernel_init=orthogonal(2**0.5))(jax.nn.one_hot(obs["direction"], 4))
        x = jnp.concatenate([image, direction], -1)
        after, x = Recurrent(self.rnn_size, "lstm")(hidden.actor, x, start)
        logits, value = MLP((32,), self.num_actions, "relu", 2.0, 0.01)(x), MLP((32,), 1, "relu", 2.0)(x)
        return ppo_rnn.Hidden(after), logits, value[..., 0]

    def actor(self, hidden: Any, obs: Any, start: Any) -> tuple[Any, Any]:
        after, logits, _ = self(ppo_rnn.Hidden(hidden), obs, start)
        return after.actor, logits

    def critic(self, hidden: Any, obs: Any, start: Any) -> tuple[Any, Array]:
        after, _, value = self(ppo_rnn.Hidden(hidden), obs, start)
        return after.actor, value
