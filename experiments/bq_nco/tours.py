"""Trained on shortest tours of 13 cities, how good is a policy on 20 and 50? BQ-NCO by behaviour cloning, for the TSP.

    python experiments/bq_nco/tours.py [--instances 4096] [--steps 6000]

Writes tours.json beside this file.
"""

import argparse
import json
import time
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from rests import returns

import jaxrl
from jaxrl.algos import bc
from jaxrl.data.datasets import Dataset
from jaxrl.envs.routing import tsp
from jaxrl.exact.routing import MAX_CITIES, distances, held_karp
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.nn.attention import Block

HERE = Path(__file__).parent
TRAINED, STATES = 13, 32  # cities of an instance, and steps of each that are kept
TESTS = 13, 20, 50
CONFIG, HYPER = bc.Config(batch_size=128), bc.Hyper(learning_rate=1e-3, max_grad_norm=1.0)


class TourActor(nn.Module):
    """BQ-NCO's kind of network: the cities that are left, where one is and the tour's end attend to each other.

    A city is told by where it lies from both of these, so that a tour that is moved is the same tour.
    """

    width: int = 48
    layers: int = 3

    @nn.compact
    def __call__(self, obs):
        ends = jnp.stack([obs["origin"], obs["destination"]], -2)
        places = jnp.concatenate([obs["cities"], ends], -2)
        ways = places[..., None, :] - ends[..., None, :, :]  # (..., n + 2, 2, 2)
        far = jnp.sqrt(jnp.sum(ways**2, -1) + 1e-12)
        kind = jnp.broadcast_to(jnp.eye(3)[jnp.array([0] * obs["cities"].shape[-2] + [1, 2])], (*places.shape[:-1], 3))
        x = jnp.concatenate([ways.reshape(*places.shape[:-1], 4), far, kind], -1)
        x = nn.Dense(self.width)(nn.relu(nn.Dense(2 * self.width)(x)))
        there = jnp.concatenate([obs["action_mask"], jnp.ones((*ends.shape[:-1],), bool)], -1)
        visible = jnp.broadcast_to(there[..., None, :], (*there.shape, there.shape[-1]))
        for _ in range(self.layers):
            block = Block(self.width, 4 * self.width, 4, True, False)
            x = block.mix(x, *block.split(x), visible)
        return nn.Dense(1)(nn.LayerNorm()(x))[..., :-2, 0]


def demonstrations(key):
    """`(observations, actions)` of rests of one shortest tour: from any of its cities, in either direction, to any end.

    What is between two cities of a shortest tour is a shortest way through the same cities.
    """
    city_key, state_key = jax.random.split(key)
    cities = jax.random.uniform(city_key, (TRAINED, 2))
    _, tour = held_karp(distances(cities))

    def one(key):
        start_key, way_key, count_key = jax.random.split(key, 3)
        turned = jnp.where(jax.random.bernoulli(way_key), tour, tour[::-1])
        turned = jnp.roll(turned, jax.random.randint(start_key, (), 0, TRAINED))
        left = jax.random.randint(count_key, (), 2, TRAINED)  # cities between here and the destination
        there = jnp.zeros(TRAINED, bool).at[turned].set((jnp.arange(TRAINED) >= 1) & (jnp.arange(TRAINED) <= left))
        end = turned[(left + 1) % TRAINED]  # the whole tour ends where it begins
        shown = {"cities": jnp.where(there[:, None], cities, 0), "action_mask": there}
        return {**shown, "origin": cities[turned[0]], "destination": cities[end]}, turned[1]

    return jax.vmap(one)(jax.random.split(state_key, STATES))


def two_opt(cities):
    """The length of a tour that no exchange of two of its edges shortens, from the nearest neighbour's; NumPy."""
    cities, n = np.asarray(cities, float), len(cities)
    way = np.linalg.norm(cities[:, None] - cities[None], axis=-1)
    best = np.inf
    for start in range(n):
        tour, left = [start], set(range(n)) - {start}
        while left:
            tour.append(min(left, key=lambda c: way[tour[-1], c]))
            left.remove(tour[-1])
        tour, better = np.array(tour), True
        while better:
            after = np.roll(tour, -1)
            edge = way[tour, after]
            gain = edge[:, None] + edge[None] - way[tour[:, None], tour[None]] - way[after[:, None], after[None]]
            np.fill_diagonal(gain, 0)
            i, j = sorted(np.unravel_index(np.argmax(gain), gain.shape))
            better = gain[i, j] > 1e-9
            if better:
                tour[i + 1 : j + 1] = tour[i + 1 : j + 1][::-1]
        best = min(best, edge.sum())
    return best


def gaps(policy, count, cities, key):
    """Per cent above the shortest tour `(count,)` of the policy and of who goes to the nearest city.

    Where there are too many cities for exact tours, above `two_opt`, the best from every start.
    """
    env = tsp.TSP(cities)
    levels = jax.vmap(env.generate, (0, None))(jax.random.split(key, count), env.default_params)
    act = bc.make(env, CONFIG, actor=TourActor()).act
    learned = jax.jit(lambda policy, levels: returns(env, lambda o: act(policy, key, o, (), greedy=True)[0], levels))
    greedy = jax.jit(lambda levels: returns(env, tsp.greedy, levels))
    if cities <= MAX_CITIES:
        best = jax.jit(lambda levels: -jax.lax.map(env.optimal_value, levels))(levels)
    else:
        best = np.array([two_opt(x) for x in np.asarray(levels.cities)])
    return [100 * (-np.asarray(x) / np.asarray(best) - 1) for x in (learned(policy, levels), greedy(levels))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("--instances", 4096), ("--steps", 6000), ("--tested", 64), ("--seeds", 1)):
        parser.add_argument(name, type=int, default=default)
    args = parser.parse_args()
    results = {"settings": vars(args), "seeds": []}
    for seed in range(args.seeds):
        data_key, train_key, test_key = jax.random.split(jax.random.key(seed), 3)
        began = time.process_time()
        make = jax.jit(lambda keys: jax.lax.map(demonstrations, keys))
        found = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), make(jax.random.split(data_key, args.instances)))
        obs, action = jax.block_until_ready(found)
        labelled = time.process_time() - began
        ended = jnp.ones(len(action), bool)
        data = Dataset(obs, action, jnp.zeros(len(action)), ended, ended, obs)
        print(f"{data.size:,} steps of shortest tours, {labelled:.0f} CPU s", flush=True)
        algo = bc.make(tsp.TSP(TRAINED), CONFIG, replay=data, actor=TourActor())
        policy = jax.jit(lambda key, algo=algo: algo.policy(jaxrl.train(algo, key, args.steps, HYPER)[0]))(train_key)
        jax.block_until_ready(policy)
        row = {"labels_cpu_seconds": labelled, "training_cpu_seconds": time.process_time() - began - labelled}
        for cities in TESTS:
            found = gaps(policy, args.tested, cities, test_key)
            row[str(cities)] = {who: x.tolist() for who, x in zip(("learned", "nearest"), found, strict=True)}
            told = [f"{x.mean():.2f} (+-{1.96 * x.std() / len(x) ** 0.5:.2f})" for x in found]
            print(f"| {seed} | {cities} | {' | '.join(told)} |", flush=True)
        results["seeds"].append(row)
    (HERE / "tours.json").write_text(json.dumps({**results, **environment_of_run()}) + "\n")


if __name__ == "__main__":
    main()
