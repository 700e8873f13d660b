"""Recurrent PPO with a convolution on MiniGrid: where an update's time goes, and how far it is from the machine's peak.

Parts are programs of their own: the environments under random actions, a rollout (environments, network, values), and
what is learned from it. The FLOPs are counted by hand, a multiplication and an addition each: the products of the
network once a step in a rollout, three times a step and pass where gradients are taken. The share is of what a large
float32 product reaches in the same process, at the number of threads that this process has. The layers are those of one
of the two networks, forwards and backwards for one minibatch.

Run: `taskset -c 0 python benchmarks/recurrent_ppo.py [ID ...]`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from common import batched_action, print_table, save, time_program
from off_policy import peak

import jaxrl
from jaxrl.algos import ppo_rnn
from jaxrl.nn.networks import MLP, Encoder
from jaxrl.nn.recurrent import Recurrent

IDS = ("MiniGrid-DoorKey-8x8-v0", "MiniGrid-KeyCorridorS3R2-v0", "Maze-v0")


def products(algo: Any, obs: Any) -> float:
    """FLOPs of the network for one step of one environment: every weight of a matrix once, of a kernel at each cell."""
    image = jax.tree.leaves(obs["image"] if isinstance(obs, dict) else obs)[0]
    cells = math.prod(size - 2 for size in image.shape[1:3])  # 3 x 3 kernels, nothing added at the edges
    total = 0.0
    for x in jax.tree.leaves(jax.eval_shape(algo.init, jax.random.key(0)).weights):
        if x.ndim >= 2:
            total += 2 * x.size * (cells if x.ndim == 4 else 1)
    return total


def seconds(fn: Callable[..., Any], *args: Any, repeats: int) -> float:
    return time_program(fn, *args, repeats=repeats)["run_s"]


def pieces(space: Any, config: ppo_rnn.Config, rows: int, repeats: int) -> dict[str, float]:
    """Seconds of the gradients of each layer of one network for a minibatch: `rows` environments over all steps."""
    keys = jax.random.split(jax.random.key(0), (config.num_steps, rows))
    obs, start = jax.vmap(jax.vmap(space.sample))(keys), jnp.zeros(keys.shape, bool)
    encoder = Encoder(space, config.conv, config.activation)
    dense, gru = MLP(config.hidden, None, config.activation), Recurrent(config.rnn_size, config.rnn)
    hidden, found, x = jnp.zeros((rows, config.rnn_size)), {}, obs
    layers = {
        "convolution": (encoder, lambda x: (x,), lambda y: y),
        "dense": (dense, lambda x: (x,), lambda y: y),
        "gru": (gru, lambda x: (hidden, x, start), lambda y: y[1]),
    }
    for name, (layer, given, taken) in layers.items():
        weights = layer.init(jax.random.key(1), *given(x))

        def loss(weights, x, layer=layer, given=given, taken=taken):
            return jnp.sum(jnp.sin(taken(layer.apply(weights, *given(x)))))

        of = (0,) if x is obs else (0, 1)  # nothing is learned about an observation
        found[name] = seconds(jax.grad(loss, of), weights, x, repeats=repeats)
        x = taken(layer.apply(weights, *given(x)))
    return found


def parts(name: str, num_envs: int, repeats: int) -> dict[str, Any]:
    env, params = jaxrl.make(name)
    config = ppo_rnn.Config(num_envs=num_envs, num_steps=128, num_epochs=2, num_minibatches=8, conv=(16,))
    algo, venv = ppo_rnn.make(env, config), jaxrl.vectorize(env, num_envs)
    space = env.action_space(params)
    state = jax.jit(algo.init)(jax.random.key(0))
    after, rollout = jax.jit(algo.collect)(state)

    def walked(env_state: Any) -> Any:
        def step(env_state, key):
            ts = venv.step(key, env_state, batched_action(key, space, num_envs), params)
            return ts.state, (ts.reward, jax.tree.map(lambda x: x.sum(), ts.obs))

        return jax.lax.scan(step, env_state, jax.random.split(jax.random.key(1), config.num_steps))

    steps = config.num_envs * config.num_steps
    start = jax.jit(venv.reset)(jax.random.key(0), params)[1]
    found = {
        "environments": seconds(walked, start, repeats=repeats),
        "rollout": seconds(algo.collect, state, repeats=repeats),
        "learning": seconds(algo.learn, after, rollout, repeats=repeats),
        "update": seconds(algo.update, state, repeats=repeats),
    }
    step = products(algo, state.obs)
    top = peak()
    flops = {"rollout": steps * step, "learning": 3 * config.num_epochs * steps * step}
    shares = {f"{part}'s share": flops[part] / found[part] / top for part in flops}
    layers = pieces(env.observation_space(params), config, num_envs // config.num_minibatches, repeats)
    return {"steps": steps, "flops a step": step, "peak": top, **found, **shares, "layers": layers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", default=IDS)
    parser.add_argument("--num-envs", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default="recurrent_ppo.json")
    args = parser.parse_args()
    found, rows = {}, []
    for name in args.ids:
        found[name] = x = parts(name, args.num_envs, args.repeats)
        whole = x["update"]
        rows.append(
            [
                name,
                f"{x['steps'] / whole:,.0f}",
                *(f"{x[part] / whole:.0%}" for part in ("environments", "rollout", "learning")),
                *(f"{x[share]:.0%}" for share in ("rollout's share", "learning's share")),
                *(f"{x['layers'][name] * 1e3:.1f}" for name in ("convolution", "dense", "gru")),
            ]
        )
    head = ["", "steps/s", "environments alone, of the update", "rollout", "learning"]
    head += ["rollout, of the peak", "learning", "a minibatch's convolution, ms", "dense layer", "GRU"]
    print_table(f"Recurrent PPO, {args.num_envs} environments, two passes", head, rows)
    save(args.out, {"num_envs": args.num_envs, "tasks": found})


if __name__ == "__main__":
    main()
