"""Regret, suboptimality and return of a pretrained network and its rivals on fresh tasks, and pictures of them."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tasks import Task

from jaxrl import Algorithm, vectorize
from jaxrl.algos.bandits import thompson
from jaxrl.algos.meta import dpt
from jaxrl.wrappers import PreviousActionReward


def levels_of(task: Task, key: Any, n: int) -> Any:
    return jax.vmap(task.draw, (0, None))(jax.random.split(key, n), task.params)


def online(task: Task, algo: Algorithm, weights: Any, levels: Any, key: Any, num_steps: int) -> dict[str, np.ndarray]:
    """Reward and regret, (T, E), of the sampled policy, which keeps its context through all episodes of a task."""
    E = len(jax.tree.leaves(levels)[0])
    venv = vectorize(PreviousActionReward(task.env), E, batched_params=True)

    @jax.jit
    def run(key):
        reset_key, key = jax.random.split(key)
        obs, state = venv.reset(reset_key, levels)

        def step(carry, key):
            obs, state, context = carry
            act_key, env_key = jax.random.split(key)
            action, context = algo.act(weights, act_key, obs, context)
            ts = venv.step(env_key, state, action, levels)
            return (ts.obs, ts.state, context), (ts.reward, ts.info.get("regret", jnp.zeros(E)))

        start = (obs, state, algo.initial_carry((E,)))
        return jax.lax.scan(step, start, jax.random.split(key, num_steps))[1]

    reward, regret = run(key)
    return {"reward": np.asarray(reward), "regret": np.asarray(regret)}


def online_rival(rival: Algorithm, levels: Any, key: Any, num_steps: int) -> dict[str, np.ndarray]:
    """Reward and regret, (T, E), of an online algorithm that starts from nothing on every task."""
    keys = jax.random.split(key, len(jax.tree.leaves(levels)[0]))

    @jax.jit
    def run(keys):
        state = jax.vmap(lambda key, level: rival.init(key, None, level))(keys, levels)
        metrics = jax.lax.scan(lambda s, _: jax.vmap(rival.update)(s), state, length=num_steps)[1]
        return {name: metrics[name] for name in ("reward", "regret")}

    return jax.tree.map(np.asarray, run(keys))


def offline(
    task: Task, config: dpt.Config, weights: Any, levels: Any, key: Any, at: list[int]
) -> dict[str, np.ndarray]:
    """Suboptimality (len(at), E) of greedy choices on a Gaussian bandit after `at` steps of the random behaviour.

    The empirical mean and the lower confidence bound, mean - 1 / sqrt(pulls), choose among the arms that were pulled;
    Thompson sampling takes the arm that is best in most of 200 draws from its posterior.
    """
    play_key, draw_key = jax.random.split(key)
    source, arms = dpt.random_behaviour(task.env), task.env.arms
    keys = jax.random.split(play_key, len(levels.mean))

    @jax.jit
    def contexts(keys):
        state = jax.vmap(lambda key, level: source.init(key, None, level))(keys, levels)
        x = jax.lax.scan(lambda s, _: jax.vmap(source.collect)(s), state, length=config.num_steps)[1].experience
        obs, action, reward, done = (y[:, :, 0] for y in (x.obs, x.action, x.reward, x.terminated | x.truncated))
        return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), dpt.remembered(obs, action, reward, done, arms))

    obs = contexts(keys)
    network = dpt.Transformer(arms, config.width, config.hidden, config.layers, config.heads, config.attention)
    space = PreviousActionReward(task.env).observation_space(task.params)
    # A few contexts at a time: the scores of all of them are gigabytes.
    logits = jax.jit(lambda w, x: jax.lax.map(lambda x: network.apply(w, x), x, batch_size=16))(
        weights, dpt.tokens(space, obs)
    )
    pulls = jnp.cumsum(obs["previous_action"], 1)[:, jnp.asarray(at)]
    total = jnp.cumsum(obs["previous_action"] * obs["previous_reward"][..., None], 1)[:, jnp.asarray(at)]
    mean = jnp.where(pulls > 0, total / jnp.maximum(pulls, 1), -jnp.inf)
    hyper = thompson.Hyper(prior_mean=0.5, prior_scale=np.sqrt(1 / 12), noise_scale=float(task.params.scale))
    posterior, variance = thompson.normal_posterior(pulls, total, hyper)
    draws = posterior + jnp.sqrt(variance) * jax.random.normal(draw_key, (200, *posterior.shape))
    choices = {
        "DPT": logits[:, jnp.asarray(at)],
        "empirical mean": mean,
        "LCB": mean - 1 / jnp.sqrt(jnp.maximum(pulls, 1)),
        "Thompson sampling": jnp.sum(jnp.argmax(draws, -1, keepdims=True) == jnp.arange(arms), 0),
    }
    loss = jnp.max(levels.mean, -1, keepdims=True) - levels.mean  # (E, arms)
    return {
        name: np.asarray(jnp.take_along_axis(loss[:, None], jnp.argmax(x, -1)[..., None], -1)[..., 0]).T
        for name, x in choices.items()
    }


def offline_room(
    task: Task, algo: Algorithm, weights: Any, levels: Any, key: Any, num_steps: int, greedy: bool
) -> np.ndarray:
    """Return (E,) of one episode after `num_steps` steps of the task's source, a context to which nothing is added."""
    source_key, reset_key, key = jax.random.split(key, 3)
    source, E = task.source, len(jax.tree.leaves(levels)[0])
    venv = vectorize(PreviousActionReward(task.env), E, batched_params=True)
    num_actions = task.env.action_space(task.params).n

    def play(state, _):
        state, rollout = jax.vmap(source.collect)(state)
        return jax.vmap(source.learn)(state, rollout)[0], rollout.experience

    @jax.jit
    def run(key):
        state = jax.vmap(lambda key, level: source.init(key, None, level))(jax.random.split(source_key, E), levels)
        x = jax.tree.map(lambda x: x[:, :, 0], jax.lax.scan(play, state, length=num_steps)[1])
        seen = dpt.remembered(x.obs, x.action, x.reward, x.terminated | x.truncated, num_actions)

        def read(context, obs):
            return algo.act(weights, key, obs, context)[1], None

        context, _ = jax.lax.scan(read, algo.initial_carry((E,)), seen)

        def step(carry, key):
            act_key, env_key = jax.random.split(key)
            action, _ = algo.act(weights, act_key, carry[0], context, greedy=greedy)
            ts = venv.step(env_key, carry[1], action, levels)
            return (ts.obs, ts.state), ts.reward

        keys = jax.random.split(key, int(task.params.max_steps))
        return jax.lax.scan(step, venv.reset(reset_key, levels), keys)[1].sum(0)

    return np.asarray(run(key))


def summary(x: np.ndarray) -> dict:
    """Mean over the last axis and the half width of its 95 % normal interval."""
    half = 1.96 * x.std(-1, ddof=1) / np.sqrt(x.shape[-1])
    return {"mean": x.mean(-1).round(4).tolist(), "half_width": half.round(4).tolist()}


def figure(file: Path, panels: list) -> None:
    """Panels (title, x label, y label, {name: (x, curves (X, E))}), means with 95 % intervals, side by side."""
    import matplotlib.pyplot as plt

    drawing, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.4), layout="constrained")
    for ax, (title, x_label, y_label, curves) in zip(axes, panels, strict=True):
        for name, (x, y) in curves.items():
            mean, half = (np.asarray(v) for v in summary(y).values()) if y.ndim == 2 else (y, 0)
            ax.plot(x, mean, label=name)
            ax.fill_between(x, mean - half, mean + half, alpha=0.2)
        ax.set(title=title, xlabel=x_label, ylabel=y_label)
        ax.legend(frameon=False) if len(curves) > 1 else None
    drawing.savefig(file, dpi=110)
    plt.close(drawing)
