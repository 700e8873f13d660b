"""Fine-tuning: a learner trained on a dataset goes on learning in the environment, with a replay buffer of its steps.

    offline = cql.make(env, config, replay=datasets.stored(dataset, env.action_space(params)))
    trained, _ = jaxrl.train(offline, key, gradient_steps, hyper, params)

    online = cql.make(env, config)  # or of another learner with the same networks, or with datasets.mixed
    state = fine_tune.start(online, trained, key, hyper, params, warm_up=5_000)
    state, metrics = jax.lax.scan(lambda state, _: online.update(state), state, length=20_000)

Zhou et al. (2024), "Efficient online reinforcement learning fine-tuning need not retain offline data" (WSRL): values
that were learned from a dataset are wrong in states that the policy visits, and the first gradient steps on new
transitions spoil the policy. Two remedies: batches keep a share of the dataset (`datasets.mixed`), or the frozen policy
first fills the replay buffer with some thousand steps (`warm_up`).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.algorithm import Algorithm

LEARNT = ("weights", "target_weights", "optimizer")


def start(
    algo: Algorithm,
    trained: Any,
    key: Array,
    hyper: Any = None,
    env_params: Any = None,
    warm_up: int = 0,
    optimizer: bool = True,
) -> Any:
    """A state of `algo` with the weights of the state `trained`, after `warm_up` environment steps.

    During the warm-up the trained policy acts and does not learn; these steps count in `state.step`. Learning begins
    right after it: `hyper.learning_starts` is set to 0. With `optimizer` the optimiser's moments are kept, else they
    begin anew. With `Config.normalize_obs` the statistics of the dataset's observations are kept.

    Raises ValueError for an algorithm that stores nothing, one whose networks `trained` does not have or has in other
    shapes, another `normalize_obs`, and a warm-up that is no multiple of `algo.steps_per_update`.
    """
    steps = algo.steps_per_update
    if warm_up < 0 or warm_up % steps:
        raise ValueError(f"warm_up={warm_up}: it must be a multiple of the {steps} steps of an update of {algo.name}.")
    state = algo.init(key, hyper, env_params)
    if jax.eval_shape(algo.collect, state)[1] is None:
        raise ValueError(
            f"this {algo.name} learns from a dataset and does not act; make it without, or with a mixed one."
        )
    parts = LEARNT if optimizer else LEARNT[:2]
    own, given = (getattr(x, "normalizer", None) is not None for x in (state, trained))
    if own != given:
        raise ValueError(f"this {algo.name} has normalize_obs={own}; the trained state needs normalize_obs={given}.")
    parts = (*parts, "normalizer") if own else parts
    state = state.replace(**{part: taken(algo, part, state, trained) for part in parts})
    state = warmed_up(algo, state, warm_up)
    return state.replace(hyper=state.hyper.replace(learning_starts=jnp.zeros_like(state.hyper.learning_starts)))


def taken(algo: Algorithm, part: str, state: Any, trained: Any) -> Any:
    """The field `part` of the state `trained`, for the networks that `state` has.

    Raises ValueError for a network that `trained` lacks or has in other shapes.
    """
    own, given = getattr(state, part), getattr(trained, part)
    whole = not isinstance(own, dict)  # one optimiser of all networks together has no dictionary
    if whole:
        own, given = {"all": own}, {"all": given}
    lacking = sorted(set(own) - set(given))
    if lacking:
        raise ValueError(f"{algo.name} needs {part} of {', '.join(lacking)}; trained were {', '.join(sorted(given))}.")
    for name in own:
        trees = given[name], own[name]
        old, new = ([jnp.shape(x) for x in jax.tree.leaves(tree)] for tree in trees)
        if old != new or jax.tree.structure(trees[0]) != jax.tree.structure(trees[1]):
            raise ValueError(f"{part} of {name} were trained with the shapes {old}; those of {algo.name} are {new}.")
    return given["all"] if whole else {name: given[name] for name in own}


def warmed_up(algo: Algorithm, state: Any, num_steps: int) -> Any:
    """`state` after its policy has taken `num_steps` environment steps, which are stored but not learned from."""
    hyper, never = state.hyper, jnp.iinfo(jnp.int32).max

    def with_starts(state, value):
        at = jnp.asarray(value).astype(hyper.learning_starts.dtype)
        return state.replace(hyper=hyper.replace(learning_starts=at))

    def update(state, _):
        state, rollout = algo.collect(with_starts(state, 0))  # by the policy, not at random
        return algo.learn(with_starts(state, never), rollout)[0], None

    state = jax.lax.scan(update, with_starts(state, never), length=num_steps // algo.steps_per_update)[0]
    return state.replace(hyper=hyper)
