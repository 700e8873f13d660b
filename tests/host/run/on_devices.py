"""Runs on forced CPU devices, for tests that start this file in a process of its own and read the JSON it prints."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl import registry
from jaxrl.algos import a2c, ppo
from jaxrl.host.run.fit import fit
from jaxrl.host.run.sharding import make_mesh
from jaxrl.host.run.sweep import sweep
from jaxrl.host.run.training_program import Program, abstract_update

PPO = ppo.Config(num_envs=4, num_steps=8, num_epochs=1, num_minibatches=2, hidden=(7,))
UPDATES = 12


COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute")


def plain(tree):
    """Leaves as numbers."""
    leaves = jax.tree.leaves(tree)
    return [np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x) for x in leaves]


def furthest(one, other):
    """The largest difference between two trees, relative where numbers are large; NaN in both is none."""

    def gap(x, y):
        x, y = x.astype(float), y.astype(float)
        assert np.array_equal(np.isnan(x), np.isnan(y))
        return np.nanmax(np.nan_to_num(abs(x - y) / np.maximum(1, abs(y))), initial=0.0)

    return float(max(gap(x, y) for x, y in zip(plain(one), plain(other), strict=True)))


def meshes(folder):
    """One run on several meshes, saved on one and gone on with on others; its collectives."""
    algo = ppo.make(jaxrl.make("CartPole-v1")[0], PPO)
    whole, half = UPDATES * algo.steps_per_update, UPDATES // 2 * algo.steps_per_update
    settings = dict(num_seeds=8, eval_episodes=4, eval_max_steps=20, progress=False)

    def run(steps, mesh, **more):
        return fit(algo, jax.random.key(1), steps, mesh=mesh and make_mesh(mesh), **settings, **more)

    alone = run(whole, None, eval_every=half)
    found = {}
    for mesh in ("seeds=4", "envs=2", "seeds=4,envs=2"):
        result = run(whole, mesh, eval_every=half)
        found[mesh] = [
            furthest(result.state, alone.state),
            furthest(result.metrics, alone.metrics),
            furthest(*([np.array(row["return"]) for row in r.evaluations] for r in (result, alone))),
        ]
    run(half, "seeds=4,envs=2", out=folder)
    resumed = run(whole, "seeds=2", out=folder, resume=True)
    parts = {str(x.sharding.num_devices) for x in jax.tree.leaves(resumed.state)}
    found["resumed"] = [furthest(resumed.state, alone.state), sorted(parts)]
    points = [{"learning_rate": 1e-3}, {"learning_rate": 1e-2}]
    swept = dict(num_seeds=2, eval_episodes=4, eval_max_steps=20, progress=False, at_once=4)
    returns = [
        sweep(algo, jax.random.key(1), half, points, mesh=mesh, **swept) for mesh in (None, make_mesh("seeds=4"))
    ]
    found["sweep"] = furthest(*returns)
    try:
        sweep(algo, jax.random.key(1), half, points, mesh=make_mesh("seeds=4"), **{**swept, "num_seeds": 3})
    except ValueError as error:
        found["refused"] = str(error)
    for mesh in ("seeds=8", "envs=2"):
        jitted, arguments = abstract_update(algo, make_mesh(mesh), 8)
        text = jitted.lower(*arguments).compile().as_text()
        found[f"collectives {mesh}"] = [name for name in COLLECTIVES if f" {name}(" in text]
        if mesh == "seeds=8":  # nothing but where metrics are handed to the host, outside of every loop
            entry = text[text.index("ENTRY") :]
            found["outside"] = text.count(" all-gather(") == entry.count(" all-gather(")
    jitted, arguments = abstract_update(algo, make_mesh("envs=2"))
    found["rows of a minibatch"] = "f32[8,7]{1,0} dot(" in jitted.lower(*arguments).compile().as_text()
    return found


def two_devices():
    """Whether seeds on two devices are those on one."""
    algo = a2c.make(jaxrl.make("CartPole-v1")[0], a2c.Config(num_envs=2, num_steps=4, hidden=(4,)))
    return on_both(algo)


def rules(by):
    """The same of rules that are learned, by a file of that name."""
    module = registry.get_algo(f"jaxrl.algos.rule_learners.{by}")
    small = {"num_agents": 2, "num_updates": 1} if by == "gradients" else {"num_pairs": 2}
    config = module.Config(rule="a2c", lifetimes=(1, 2), num_envs=2, num_steps=2, hidden=(2,), **small)
    return on_both(module.make(jaxrl.make("CartPole-v1")[0], config))


def on_both(algo):
    """`(difference, devices)` of four seeds on one device and on two."""
    states = []
    for mesh in (None, make_mesh("seeds=2")):
        program = Program(algo, jax.random.key(0), 4, None, None, mesh)
        carry = program.start()
        program.compile(carry)
        states.append(program.call(carry, 0, 3)[0][0])
    return furthest(*states), states[1].step.sharding.num_devices


def small(name):
    """`(algo, hyper, env_params)` of the contract's tests."""
    from tests.test_contract_algos import CONTRACT, SETUPS, cased, made

    return cased(name) if name in CONTRACT else (*made(name, SETUPS[name].task), None)


def traced():
    """Of each algorithm on envs=2, traced and lowered: `[leaves divided, constraints of minibatches]`, or why not."""
    found = {}
    for name in jaxrl.list_algos():
        algo, hyper, params = small(name)
        try:
            jitted, arguments = abstract_update(algo, make_mesh("envs=2"), None, hyper, params)
        except ValueError as error:
            found[name] = str(error)
            continue
        text = jitted.lower(*arguments).as_text()
        divided = [x for x in jax.tree.leaves(arguments[0]) if x.sharding.shard_shape(x.shape) != x.shape]
        found[name] = len(divided), text.count("sdy.sharding_constraint")
    return found


def algorithms(*names):
    """The difference of two updates of each on envs=2 from those on one device."""
    found = {}
    for name in names:
        algo, hyper, params = small(name)
        states = []
        for mesh in (None, make_mesh("envs=2")):
            program = Program(algo, jax.random.key(0), None, hyper, params, mesh)
            carry = program.start()
            program.compile(carry)
            states.append(program.call(carry, 0, 2)[0][0])
        found[name] = furthest(*states)
    return found


def networks():
    """`{way: (difference, devices)}` of PPO with networks of other libraries, on one device and on two."""
    from tests.interop.test_neural import CONFIG, DRAWN

    env = jaxrl.make("CartPole-v1")[0]
    return {way: on_both(ppo.make(env, CONFIG, network=network)) for way, network in DRAWN.items()}


if __name__ == "__main__":
    jobs = {f.__name__: f for f in (meshes, two_devices, rules, algorithms, traced, networks)}
    print(json.dumps(jobs[sys.argv[1]](*sys.argv[2:])))
