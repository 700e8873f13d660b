"""The cells of `test_stored_results.py`: what is measured again of which study, and how near it must be."""

from __future__ import annotations

from typing import NamedTuple


class Cell(NamedTuple):
    """What to measure again.

    `code` binds `again`, and `stored` from `r`, what the study's JSON file holds. With a `tolerance` the numbers are
    compared one by one, by their difference, and by `relative` difference. Without one they are returns of trained
    seeds, which another processor's rounding turns into other draws: their means may differ by `CHANCE` standard
    errors.
    """

    code: str
    tolerance: float | None = None
    relative: float = 0.0
    file: str = "results.json"


CELLS = {
    "action_free": Cell(
        """
keys = jax.random.split(jax.random.key(0), 4)
arms, _ = jax.jit(lambda keys: jax.lax.map(run.sets, keys))(keys)
score = jax.jit(lambda *x: jax.lax.map(lambda x: run.score("iql", *x), x))
again, stored = score(keys, arms["proxies for the rest"]), r["iql, proxies for the rest"]
"""
    ),
    "asymmetric_self_play": Cell(
        """
import two_players
two_players.BUDGETS = two_players.BUDGETS[:2]
again = run.measure("self-play", 0)["shortest"]
stored = r["found"]["self-play/0"]["shortest"][:2]
""",
        tolerance=0.05,  # of another processor's rounding
    ),
    "attacks": Cell(
        """
again = [run.of_strength(seed)["returns"][2][2] for seed in range(3)]  # under a director of strength 0.1
stored = [r[f"strength/{seed}"]["returns"][2][2] for seed in range(10)]
"""
    ),
    "barfi": Cell(
        """
run.SEEDS = 4
env, config, hint, updates, rate = run.TASKS["grid, misled"]
again = run.trained(env, config, hint, updates, ["BARFI"], rate)[0]
stored = r["results"]["grid, misled"]["BARFI"]["returns"]
"""
    ),
    "bellman_completeness": Cell(
        """
import linear_q
name = "Q-learning without an end, 12 states, width 16"
again = linear_q.measure(3, 16, "Q-learning without an end", 10)["error"]
again, stored = (np.log10(x) for x in (again, r["LinearQ"][name]["error"]))  # a few are thousands of times the others
"""
    ),
    "bilevel_preferences": Cell(
        """
again = np.log(run.queries("grid", "error-free", "kept", True, 0.03, range(10))[0])
stored = np.log(r["rows"]["grid/error-free/kept/with"]["queries"])
"""
    ),
    "bq_nco": Cell(
        """
import rests
from jaxrl.envs.routing import knapsack
key = jax.random.split(jax.random.key(0), 3)[2]
env = knapsack.Knapsack(50, rests.CAPACITY)
params = env.default_params.replace(capacity=jnp.int32(12_500))
levels = jax.vmap(env.generate, (0, None))(jax.random.split(key, r["settings"]["tested"]), params)
best = jax.jit(lambda x: jax.lax.map(env.optimal_value, x))(levels)
again, stored = 100 * (1 - rests.returns(env, knapsack.greedy, levels) / best), r["seeds"][0]["50"]["greedy"]
""",
        tolerance=1e-3,
    ),
    "combination_lock": Cell(
        """
run.ARMS, run.ITERATIONS = {"HNPG": run.ARMS["HNPG"]}, 45  # it has solved the lock by then
env, params = jaxrl.make("CombinationLock-v0")
(_, curve), data = run.hybrids(env, params, jax.random.split(jax.random.key(0), 2))
stored = np.array(r["arms"]["HNPG"]["curve"])[:2, :45].mean(1)
again, stored = [*np.mean(curve[:, 0], 1), *data], [*stored, *r["return of the data"][:2]]
""",
        tolerance=0.002,
    ),
    "contexts": Cell(
        """
method = "default"
program = jax.jit(jax.vmap(run.program(method, run.Contexts(run.TASKS["pendulum"]))))
returns = program(jax.random.split(jax.random.key(0), 3))
again, stored = (np.mean(x, 1) for x in (returns, r[f"pendulum/{method}"]["returns"]))
"""
    ),
    "continual_offline": Cell(
        """
found, _ = jax.jit(lambda keys: jax.lax.map(run.run, keys))(jax.random.split(jax.random.key(0), 3))
arm = "model-based"
again, stored = found[:, run.ARMS.index(arm), -1].mean(-1), r[f"performance, {arm}"]
"""
    ),
    "designer_order": Cell(
        """
again, stored = (x["returns"] for x in (run.measure("Pendulum-v1", "order", 3), r["Pendulum-v1, order"]))
"""
    ),
    "disco": Cell(
        """
task = "Catch-bsuite"
env, params = jaxrl.make(task)
_, algo, hyper, rates, _ = list(run.methods(task, env, None))[-1]
steps = run.UPDATES[task] * run.disco.Config().num_envs * 29
again = [run.curve(algo, hyper(learning_rate=rates[0]), None, params, steps, seed)[1] for seed in range(2)]
stored = r[task]["methods"]["A2C"]["returns"]
again, stored = np.mean(again, 1), np.mean(stored, 1)
"""
    ),
    "dual_rl": Cell(
        """
on = run.task("PointMass-v0", int(1.5 * run.SHARE * run.NUM_STEPS), run.NUM_STEPS)
again, stored = [on.worst, on.best], list(r["tasks"]["PointMass-v0"].values())
""",
        tolerance=0.05,
    ),
    "edge_of_reach": Cell(
        """
row = next(x for x in r["rows"] if (x["arm"], x["k"]) == ("MOPO", 1))
found = run.measure("MOPO", 1, 5, r["settings"]["steps"])
again, stored = (np.log10(np.array(x["q"])[:, -1]) for x in (found, row))  # they explode
"""
    ),
    "effective_horizon": Cell(
        """
import itertools, measure, tasks
found = [measure.analyse(name, limit, mdp) for name, limit, _, mdp, _ in itertools.islice(tasks.study(), 3)]
names = [x for x in found[0] if x != "name"]
again = [[row[x] for x in names] for row in found]
stored = [[row[x] for x in names] for row in r["rows"][:3]]
""",
        tolerance=1e-4,
    ),
    "effective_horizon, shallow": Cell(
        """
import shallow
rows = shallow.json.loads(Path("results.json").read_text())["rows"]
again, stored = shallow.measure(1, 4, rows, 3)["solved"], r["settings"]["1 4"]["solved"]
""",
        file="shallow.json",
    ),
    "exploring_preferences": Cell(
        """
run.SEEDS, run.ROUNDS = 10, 2_000
again, stored = run.measure(0.05, 0.1, 0.5)["rounds"], r["better, 0.05, 0.1"]["rounds"]
"""
    ),
    "expo": Cell(
        """
run.STEPS = 1600  # the first 8 of 20 points, whatever comes after
data, _ = run.guided(0, episodes=40, noise=1.0)
keys, arm = jax.random.split(jax.random.key(0), run.SEEDS)[:3], "no edits: 8 samples"
again, stored = jax.jit(jax.vmap(run.program(arm, data)))(keys)[:, -1], np.array(r[arm]["curves"])[:, 8]
"""
    ),
    "fishery": Cell(
        """
import argparse
options = argparse.Namespace(steps=300_000, seeds=0, episodes=r["settings"]["episodes"])
found = run.measure(options, 1, 0.0, jax.random.key(0))
rules = [name for name in found if name != "PPO"]
again = [[found[name][0][x] for x in ("return", "lost")] for name in rules]
stored = [[r["results"]["one fishery"][name][0][x] for x in ("return", "lost")] for name in rules]
""",
        tolerance=0.02,
        relative=1e-3,
    ),
    "histories": Cell(
        """
import room
recorded = [room.record(np.random.default_rng(seed), max(run.SIZES)) for seed in range(10)]
known = [room.known(room.Data(*(x[:100] for x in data))) for data in recorded]
stored = r["data"]["100"]
again = [np.mean([row[name] for row in known]) for name in stored]
stored = list(stored.values())
""",
        tolerance=0.001,
    ),
    "hl_gauss": Cell(
        """
assert r["noise"][2] == 16.0
again = run.measure("hl_gauss", r["noise"][2:], 6, r["steps"])
again, stored = (np.log10(x) for x in (again, r["returns"]["hl_gauss"][2]))  # one is twice the others
"""
    ),
    "in_context": Cell(
        """
task, keys = run.TASKS["linear"](), jax.random.split(jax.random.key(2), 4)
networks = {}
for kind, twin, stem in (("DPT", task, "linear"), ("AD", task.distilled(), "linear_ad")):
    networks[kind] = run.Network(twin, *run.load(twin, Path("weights", f"{stem}.npz")))
row = r["linear"]
found = run.bandit(networks, row["tasks"], keys)[0]["regret"]
ends = ([[x[name][y] for name in found] for y in ("mean", "half_width")] for x in (found, row["regret"]))
(mean, half), (before, half_before) = np.array(list(ends))
again = (mean - before) / (np.hypot(half, half_before) / 1.96)  # in standard errors
stored = np.zeros_like(again)
""",
        tolerance=4.0,
    ),
    "joint_bins": Cell(
        """
keys = jax.random.split(jax.random.key(0), run.SEEDS)[:3]
again, stored = run.pulled("ARSQ", keys)[0], r["ARSQ"]["paid"]
"""
    ),
    "learned_rules": Cell(
        """
row = r["lives"]["rules"]["lpg-cpu-1"]["10"]
env, judging = run.levels(2, r["lives"]["levels"])
best = jax.jit(jax.vmap(run.optimal_value))(judging)
rates, key = jnp.array(row["learning_rates"]), jax.random.fold_in(jax.random.key(10), 1)
rule = run.gradients.load("lpg-cpu-1").rule
got = jax.jit(lambda *args: run.returns_of(rule, env, *args))(judging, rates, key, jnp.int32(10))
assert abs(best.mean() - r["lives"]["optimal"]) < 1e-4
again = np.asarray(got) - row["returns"]  # level by level, as levels differ by more than lives do
stored = np.zeros_like(again)
"""
    ),
    "lettuce_weather": Cell(
        """
again = [run.measure("MBPO", seed)[0, :, 0].mean() for seed in range(2)]
stored = [np.mean(x, 1)[0, 0] for x in r["MBPO"]["found"].values()]
"""
    ),
    "maml": Cell(
        """
family = run.FAMILIES["pendulum"]
tasks = jax.vmap(family.env.generate, (0, None))(
    jax.random.split(jax.random.key(10_000), 40), family.env.default_params
)
judge = run.maml.make(family.env, run.maml.Config(**family.config))
hyper = jaxrl.environment.strongly_typed(
    run.maml.Hyper(**{**family.hyper, "inner_learning_rate": run.INNER})
)
weights = judge.init(jax.random.key(0), hyper).weights
keys = jax.random.split(jax.random.fold_in(jax.random.key(0), 1), 40)
adapted = jax.jit(jax.vmap(lambda key, task: run.maml.adapt(judge, weights, key, task, hyper, run.STEPS)[1]))
again = adapted(keys, tasks)[:, 0]
stored = np.array(r["results"]["untrained"]["returns"])[0, :, 0]
""",
        file="pendulum.json",
        tolerance=1.0,
    ),
    "mbtl": Cell(
        """
from tasks import TASKS
found = run.summary(TASKS["pendulum_dt"], np.load("pendulum_dt.npz"))
ways = ("mbtl", "equidistant", "greedy oracle")
again, stored = ([x[way]["curve"] for way in ways] for x in (found, r["tasks"]["pendulum_dt"]))
""",
        tolerance=0.002,
    ),
    "memory": Cell(
        """
assert run.bound(*jaxrl.make("MemoryLength-bsuite")) == r["bound"]
again = run.measure("PPO-RNN", 6, r["steps"])["returns"]
stored = r["agents"]["PPO-RNN"]["returns"]
"""
    ),
    "memory, cells": Cell(
        """
import cells
task = "TMazePassive-v0"
again, stored = cells.measure(task, cells.TASKS[task], "min_gru", 3)["returns"], r[task]["min_gru"]["returns"]
""",
        file="cells.json",
    ),
    "memory, corridors": Cell(
        """
import corridors
train = corridors.program("min_gru")
again, stored = [train(jax.random.key(seed))[2] for seed in range(3)], [x[2] for x in r["min_gru"]["success"]]
""",
        file="corridors.json",
    ),
    "memory_allocation": Cell(
        """
id = "MemoryAllocation-A-v0"
again, stored = [run.judged(id, rule) for rule in run.RULES.values()], list(r["rows"][id].values())
""",
        tolerance=1e-4,
    ),
    "model_based": Cell(
        """
arm = "SAC, 1 gradient step"
again = [run.program(arm)(jax.random.key(seed))[0][-1] for seed in range(3)]
stored = [returns[-1] for returns in r[arm]["returns"]]
"""
    ),
    "model_generalization": Cell(
        """
task, arm = "ProcMaze, few steps", "perfect"
found = run.measure(arm, 4, "ProcMaze", **run.TASKS[task])
again, stored = (np.mean(x["returns"], 1) for x in (found, r[task]["arms"][arm]))
"""
    ),
    "motor": Cell(
        """
import baselines
task = "Cont-CC-PermExDc-v0"
again = baselines.measure(task, None, r["seeds"], r["steps"])["reward"]
stored = r["rows"][task]["reward"]
""",
        file="baselines.json",
        tolerance=1e-5,
    ),
    "network_precision": Cell(
        """
run.round_products()
assert run.product_error() > 1e-4
algo, task = "ppo", "Pendulum-v1"
again = run.returns(algo, task, run.RUNS[algo, task], 4)
stored = r["results"][f"{algo}/{task}"]["bfloat16"]
"""
    ),
    "offline_returns": Cell(
        """
name, learner = "Pendulum-v1", "iql"
data, (env, params) = run.DATA[name], run.task(name)
dataset, _ = run.dataset_recipes.make(env, params, data.recipe, data.steps, algo=data.algo, say=lambda *_: None)
again = run.measure(name, learner, dataset, 4, run.SETTINGS[learner][:1])["returns"]
again, stored = (np.mean(x[0], 1) for x in (again, r["data"][name]["learners"][learner]["returns"]))
"""
    ),
    "offline_to_online": Cell(
        """
name, arm = "PointMass-v0, slack", "IQL"
env, params, dataset = run.made(name)
found = run.measure(run.ARMS[arm], env, params, dataset, 3, run.SCALES[name])
again, stored = (np.array(x["returns"])[:, -3:].mean(1) for x in (found, r["tasks"][name][arm]))
"""
    ),
    "planning": Cell(
        """
again = run.measure("Pendulum-v1", run.cem, 10)[1]["returns"]
stored = r["Pendulum-v1"]["cem"]["returns"]
"""
    ),
    "props": Cell(
        """
error = run.run("bandit", run.SETTINGS["fixed"]["on-policy"], True, r["seeds"])["sampling_error"]
again = run.iqm(error[:, -1].astype(float))
stored = r["results"]["fixed"]["bandit"]["on-policy"]["sampling_error"]
""",
        tolerance=0.0,
        relative=0.01,
    ),
    "quadcopter": Cell(
        """
import racing_baseline
again = [racing_baseline.flown(name, r[name]) for name in racing_baseline.tracks.TRACKS]
again = [x.lap_time if x.valid else np.nan for x in again]
stored = [r[name]["lap_time"] for name in racing_baseline.tracks.TRACKS]
""",
        file="racing_baseline.json",
        tolerance=0.002,
    ),
    "quantum_circuits": Cell(
        """
again, stored = run.measure("H2-2", "random")[0].mean(1), np.mean(r["rows"]["H2-2/random"]["success"], 1)
"""
    ),
    "rdd_counts": Cell(
        """
keys = jax.random.split(jax.random.key(0), r["seeds"])
bonus = jax.jit(jax.vmap(lambda key: run.run(key, "rdd", "table", False)))(keys)
again = run.fits(np.asarray(bonus))[0].mean()
stored = r["results"]["table, to the end, rdd, 1"]["slope"]
""",
        tolerance=0.005,
    ),
    "regret": Cell(
        """
cls, mean, rounds, _, _, _ = run.SETTINGS["0.9, 0.8"]
again = run.curves(cls, mean, rounds, "UCB1", r["runs"])[:, -1].mean()
stored = r["results"]["0.9, 0.8"]["UCB1"]["final"]
""",
        tolerance=0.0,
        relative=0.02,
    ),
    "quality_diversity": Cell(
        """
again = run.measure("maze", "map_elites", 50_000, 3, 250)["coverage"]
stored = r["maze/map_elites/50000"]["coverage"]
"""
    ),
    "quality_diversity, gradients": Cell(
        """
import gradients
train = gradients.program("PGA-MAP-Elites", 80)
again = [train(key)[2] for key in jax.random.split(jax.random.key(0), 10)[:3]]
stored = r["learners"]["PGA-MAP-Elites"]["qd_score"]
""",
        file="gradients.json",
    ),
    "replay_ratio": Cell(
        """
again = run.measure("0.5", True, 4, r["total_steps"])["returns"]
stored = r["variants"]["0.5, LayerNorm"]["returns"]
"""
    ),
    "results": Cell(
        """
again = run.measure("evolution/CartPole-v1", 10)[0]["returns"]
stored = r["evolution/CartPole-v1"]["returns"]
""",
        tolerance=5.0,
    ),
    "residual_on_clone": Cell(
        """
again = run.measure("MountainCarContinuous-v0", "clone + 1", 2)[:, 1:].mean(1)
stored = np.array(r["MountainCarContinuous-v0, clone + 1"]["curves"])[:, 1:].mean(1)
"""
    ),
    "reward_design": Cell(
        """
mdp, _ = run.four_rooms()
task, shaped = run.exprd.task_of(mdp, run.GAMMA, run.HORIZONS), run.exprd.shaped(mdp, run.GAMMA)
again = [run.exprd.informativeness(task, x) for x in (np.asarray(task.reward), shaped)]
stored = [r["results"][name]["informativeness"] for name in ("the task's own", "potential-based")]
""",
        tolerance=1e-6,
        relative=1e-4,
    ),
    "rl2": Cell(
        """
import adapting, json
env = run.BernoulliBandit(arms=5)
params = env.default_params.replace(max_steps=jnp.int32(r["rounds"]))
regret = run.regret_of(run.thompson, run.thompson.Hyper(), env, params, r["tasks"]).mean()
name, method = "corridor, 2 ends", "RL^2"
trials = adapting.measure(name, method, 1)["trials"][0]
adapted = json.loads(Path("adapting.json").read_text())[name][method]["trials"]
again = [regret / 7, *trials]
stored = [r["arms"]["5"]["Thompson"][0] / 7, *np.mean(adapted, 0)]
""",
        # Four standard errors of the difference of two means of regrets are 0.35, a seventh of it is 0.05; of ten seeds
        # none is further from the mean return of its trial than 0.02.
        tolerance=0.05,
    ),
    "robust": Cell(
        """
found, stored = run.walk(0.99), r["walk"][0]
names = ("iterations", "promised", "kept", "worst alpha", "robust value iteration", "least optimum", "optimal")
again, stored = (np.concatenate([np.ravel(x[name]) for name in names]) for x in (found, stored))
""",
        tolerance=1e-5,
    ),
    "rule_worlds": Cell(
        """
name, sample = "medium-1m", 500
bench = run.benchmarks.benchmark(name)
picked = np.random.default_rng(0).integers(len(bench), size=sample)
chosen = jax.device_get(jax.jit(jax.vmap(bench.ruleset))(jnp.asarray(picked, jnp.int32)))
plans = [run.search.solve(jax.tree.map(lambda x: x[i], chosen)) for i in range(sample)]
lengths = [len(plan.steps) for plan in plans if plan]
again = len(lengths), sample, np.mean(lengths), np.max(lengths)
stored = [*r[name]["solved"], *r[name]["plan_steps"]]
""",
        tolerance=1e-6,
    ),
    "scores": Cell(
        """
import drawn
again, stored = ([x["score"]] for x in (drawn.train("BetaBandit-v0"), r["0"]["BetaBandit-v0"]))
""",
        tolerance=0.0,
        relative=0.02,
        file="drawn.json",
    ),
    "self_tuning": Cell(
        """
task, start, method = "Catch-bsuite", "gamma 0.5", "STAC, good outer"
names = [(x, y) for x in run.STARTS for y in run.METHODS]
hyper = list(run.hypers())[names.index((start, method))].replace(anneal_steps=jnp.int32(0))
algo = run.stac.make(jaxrl.make(task)[0], run.CONFIG)
train = jax.jit(jax.vmap(lambda key: jaxrl.train(algo, key, run.TASKS[task], hyper)[1]["episode_return"]))
returns = np.asarray(train(jax.random.split(jax.random.key(0), 4)))
again = np.nanmean(returns[:, -(returns.shape[1] // 10) :], 1)
stored = r["results"][task][start][method]["returns"]
"""
    ),
    "sequoia": Cell(
        """
import learner
env = run.CASES["path/8"]
params = jax.jit(env.generate)(jax.random.key(0), env.default_params)
policies = learner.baselines(env, params, learner.Enumerator(env, params))
stored = r["path/8"]["reward_per_step"]
episodes = r["path/8"]["settings"]["episodes"]
again = [learner.evaluate(env, params, policy, episodes).mean() for policy in policies.values()]
stored = [stored[name]["mean"] for name in policies]
""",
        tolerance=1e-3,
    ),
    "slow_decisions": Cell(
        """
name = "SAC repeat 16"
again = [run.score(run.measure(name, seed)["returns"]) for seed in range(3)]
stored = [run.score(r[f"{name}/{seed}"]["returns"]) for seed in range(5)]
"""
    ),
    "stale_rollouts": Cell(
        """
again = np.nanmean(run.trained("CartPole-v1", 4, "decoupled", seeds=4), 1)
stored = r["CartPole-v1, 4, decoupled"]["all"]
"""
    ),
    "start_states": Cell(
        """
# The teacher by hand, whose policy is not read, and the snapshots of its episodes.
env, params = jaxrl.make("MountainCar-v0")
starts = run.FromStates(env)
config, hyper = run.settings("ppo", run.ppo, "MountainCar-v0")
algo = run.ppo.make(starts, config)
guide, policy = algo._replace(act=run.push), algo.policy(algo.init(jax.random.key(100), hyper, starts.default_params))
whole = run.snapshot.Config(max_steps=int(params.max_steps))
table = run.snapshot.take(jax.random.key(101), guide, policy, env, params, whole)
returns = run.evaluate(guide, policy, jax.random.key(102), env, params, num_episodes=16, greedy=True).returns
again = int((table.weights > 0).sum()), returns.mean()
stored = r["snapshot"]["MountainCar-v0"]["snapshots"], r["snapshot"]["MountainCar-v0"]["teacher"]
""",
        tolerance=3.0,
    ),
    "stitching": Cell(
        """
found = run.measure("grid/chance/-", 10)
again, stored = ([x[name] for name in ("held_out", "seen")] for x in (found, r["runs"]["chance/-"]))
""",
        tolerance=1e-4,
    ),
    "stl_control": Cell(
        """
name = "point"
env, places = run.Episodes(name), run.system_of(name).starts(jax.random.key(1), run.TESTS)
keys = jax.random.split(jax.random.key(0), 1)
weights, _ = jax.jit(jax.vmap(lambda key: run.planners.train(key, env, run.PLAN_STEPS[name])))(keys)
once = jax.jit(jax.vmap(lambda w: run.planners.open_loop(env, w, places)))(weights)
checked = jax.jit(jax.vmap(lambda w: run.planners.predictive_control(env, w, places, True)))(weights)
planner = run.cem(env, run.CEM["CEM 128 x 3"])
searched = jax.jit(lambda key: run.planners.cem_control(env, planner, key, places[: run.CEM_TESTS]))(keys[0])
rows = [r["systems"][name][arm]["satisfied"] for arm in ("network, once", "network, checked", "CEM 128 x 3")]
again = *run.shares(once), *run.shares(checked), run.shares(searched)
stored = [row[0] for row in rows]
""",
        tolerance=0.05,
    ),
    "streaming": Cell(
        """
name = "StreamQ, all"
found = run.row(*run.ABLATIONS[name], 10, 1.0)
again, stored = (np.nanmean(np.array(x["curve"], float), 1) for x in (found, r["rows"][name]))
"""
    ),
    "over_optimisation": Cell(
        """
curve = run.one(0)["gold itself"]
again, stored = curve[2], r["curves"][0]["gold itself"][2]
""",
        tolerance=0.01,
    ),
    "interventions": Cell(
        """
again = run.drivers.trained("CartPole-v1", "HG-DAgger", 5)[0][:, -1]
stored = np.asarray(r["rows"]["CartPole-v1/HG-DAgger"]["returns"])[:, -1]
"""
    ),
    "preference_control": Cell(
        """
from jaxrl.host.data.recording import returns_of
env, params = run.judged_on("Pendulum")
again = [returns_of(env, params, run.oracle.behaviour("Pendulum", 1.0), jax.random.key(2), run.EPISODES, 200).mean()]
stored = [r["who"]["Pendulum"]["oracle"]]
""",
        tolerance=0.5,
    ),
    "preference_control, OPPO": Cell(
        """
import oppo_beside_dt as pair
found = pair.study.compared(pair.TASK, "return", 500)
env, params = pair.study.judged_on(pair.TASK)
name = "oppo, triplets weighed 1"
again = [pair.of_seed(key, name, found, env, params) for key in jax.random.split(jax.random.key(1), 3)]
stored = r["rows"][f"return/500/{name}"]["returns"]
""",
        file="oppo.json",
    ),
    "preferred_attack": Cell(
        """
again = [run.of_seed(seed, ())["arms"]["RAT"][2][2] for seed in range(3)]  # turns at strength 0.15, linear adversaries
stored = [r[f"linear/{seed}"]["arms"]["RAT"][2][2] for seed in range(10)]
"""
    ),
    "preferences": Cell(
        """
jax.config.update("jax_enable_x64", True)
(grids, keys), setting = run.grids_and_keys(10), ("regret", "error-free", True, 300)
successor = jnp.zeros((10, 1, 150, 5), jnp.float32)  # which the learner of returns does not read
again = run.judged(grids, run.learned(keys, grids, successor, *setting, "return")[0])
stored = r["rows"]["/".join(map(str, (*setting, "return")))]["scaled"][:10]
""",
        tolerance=1e-3,
    ),
    "synthetic_replay": Cell(
        """
keys = jax.random.split(jax.random.key(0), 3)
name = "error, synthetic"
again = jax.jit(lambda keys: jax.lax.map(lambda key: run.sets(key)[1][name], keys))(keys)
stored = r["sets"][name]
"""
    ),
    "teachers": Cell(
        """
again = np.round(run.curves("random", 0, 20)[0], 2)
stored = r["random/plain"]["curves"]
""",
        tolerance=0.03,
    ),
    "trajectory_weighting": Cell(
        """
on = run.task("PointMass-v0", int(max(run.SHARES) * run.NUM_STEPS), run.NUM_STEPS)
again, stored = [on.worst, on.best], list(r["tasks"]["PointMass-v0"].values())
""",
        tolerance=0.05,
    ),
    "two_goals": Cell(
        """
data, _ = run.guided(0)
keys = jax.random.split(jax.random.key(0), run.SEEDS)[:3]
found = jax.jit(jax.vmap(run.program("flow, 1 step", data)))(keys)
again, stored = (np.array(x["improved"])[:, 0] for x in (found, r["flow, 1 step"]))
"""
    ),
    "useful_levels": Cell(
        """
family = run.FAMILIES["car"]()
train, hyper = run.trainer_of(family, run.METHODS["dr"].curriculum)
hyper, params = run.settings("solvable", family, hyper, ())
judge, seeds = run.judge_of(family), r["car/solvable"]["seeds"]
policies = [train(jax.random.key(seed), hyper, params, family.steps)[0] for seed in range(4)]
again = [judge(policy, jax.random.key(5000 + seed))[0] for seed, policy in enumerate(policies)]
stored = [row["solved"][0] for row in seeds.values()]
"""
    ),
    "wrong_simulator": Cell(
        """
name, arm = "motor's inductance", "SAC, simulator"
task = run.TASKS[name]()
again, stored = run.measure(task, *run.arms(task, None)[arm](), 3)["real"], r["tasks"][name]["arms"][arm]["real"]
"""
    ),
    "zero_shot": Cell(
        """
again = run.measure("FB", 10, *run.DATA["narrow"])[0]["scores"]
stored = r["rows"]["narrow, FB"]["scores"]
"""
    ),
}

EXCEPTIONS = {
    "dataset_perspective": "the cheapest task takes 319 s, all its learners and datasets one program",
    "gbrl": "a seed of trees on CartPole-v1 takes 194 s",
    "mazes": "a run takes 222 s at least",
    "minigrid": "a seed of KeyCorridorS3R2 up to the 13th of its 25 points takes 116 s of CPU time",
    "swing_up_and_reach": "a seed of TD3 on CartPoleSwingUp-v0 takes 88 s of CPU time",
}
"""Studies too dear: what the cheapest cell costs, in the seconds that the study stored (2 CPU cores) or of CPU time."""
