"""What MBRCSL is compared with."""

from __future__ import annotations

import dataclasses
import functools

import jax
import maze
import mbrcsl

import jaxrl
from jaxrl.algos import bc, combo, cql, decision_transformer, mopo, rvs
from jaxrl.data import datasets, dynamics

GAMMA = 0.95
RVS = rvs.Config(max_steps=maze.HORIZON, num_updates=100, batch_size=128, hidden=(64, 64))
UPDATES = {"rvs": 2000, "dt": 1500, "cql": 4000, "combo": 4000, "mopo": 4000}


def arms(env, dataset, best, optimum):
    """`{name: f(key) -> {suffix: (algo, policy, what is known)}}`.

    Learners by return are asked for the best return in the data and for that of the way that is to be found.
    """
    space = env.action_space(env.default_params)
    one, stored = datasets.windows(dataset, space, 1), datasets.stored(dataset, space, None, GAMMA)

    def fitted(algo, updates, hyper, key):
        policy = algo.policy(jaxrl.train(algo, key, updates, hyper, env.default_params)[0])
        if not hasattr(policy, "scale"):
            return {"": (algo, policy, {})}
        return {f", asked for {r:.0f}": (algo, policy._replace(target=r / policy.scale), {}) for r in (best, optimum)}

    by_return = {"learning_rate": 1e-3, "return_scale": maze.HORIZON}
    values = {"learning_rate": 1e-3, "alpha_learning_rate": 1e-3, "gamma": GAMMA, "tau": 0.01, "alpha": 0.1}
    sizes = {"num_updates": 100, "batch_size": 64, "hidden": (64, 64)}
    rolled = {"num_rollouts": 100, "horizon": 5, "buffer_size": 20_000, "real_ratio": 0.5}
    widths = {"": {}, ", 8 wide": {"hidden": (8, 8)}, ", 4 wide": {"hidden": (4, 4)}}

    outputs = {suffix: dataclasses.replace(RVS, **changed) for suffix, changed in widths.items()}
    found = {"MBRCSL, diffusion": mbrcsl.arm(env, dataset, best, "diffusion", outputs, UPDATES["rvs"])}
    for kind in ("mixture", "Gaussian"):
        found[f"MBRCSL, {kind}"] = mbrcsl.arm(env, dataset, best, kind, {"": RVS}, UPDATES["rvs"])

    def add(name, algo, updates, hyper):
        found[name] = functools.partial(fitted, algo, UPDATES[updates], hyper)

    add("RvS", rvs.make(env, RVS, replay=one), "rvs", rvs.Hyper(**by_return))
    config = decision_transformer.Config(
        max_steps=maze.HORIZON, num_updates=100, batch_size=32, context=5, width=32, layers=1
    )
    algo = decision_transformer.make(env, config, replay=datasets.windows(dataset, space, config.context))
    add("DT", algo, "dt", decision_transformer.Hyper(**by_return))
    best_tenth = datasets.stored(dataset, space, datasets.best_weights(dataset, 0.1))
    add("10 % BC", bc.make(env, bc.Config(**sizes), replay=best_tenth), "rvs", bc.Hyper(learning_rate=1e-3))
    for suffix, changed in widths.items():
        config = cql.Config(**{**sizes, **changed}, num_actions=4)
        add(f"CQL{suffix}", cql.make(env, config, replay=stored), "cql", cql.Hyper(**values))
    ensemble, _ = dynamics.fit(jax.random.key(1), dataset, mbrcsl.MODEL)
    model = dynamics.predictor(ensemble)
    config = combo.Config(num_actions=4, **sizes, **rolled)
    add("COMBO", combo.make(env, config, replay=stored, model=model), "combo", combo.Hyper(**values))
    config = mopo.Config(**sizes, **rolled)
    add("MOPO", mopo.make(env, config, replay=stored, model=model), "mopo", mopo.Hyper(penalty=5.0, **values))
    return found
