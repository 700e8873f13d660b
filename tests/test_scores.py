"""The scores of record: every id has one, and normalized returns are 0 at random's and 1 at the top's."""

import ast
import fnmatch
import tomllib
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import registry, scores
from jaxrl.evaluation import episodes
from jaxrl.exact.mdp import MDP
from jaxrl.host.data.recording import at_random


def test_every_id_that_can_be_made_here_has_what_random_actions_get():
    missing = {id for id, entry in registry.environments().items() if not entry.extra} - set(scores.ids())
    assert not missing, f"python experiments/scores/run.py random --only {' '.join(sorted(missing))}"
    assert not set(scores.ids()) - set(registry.environments())


def test_records_are_complete_and_in_order():
    for id in scores.ids():
        record = scores.of(id)
        low, high = record.random.interval
        assert low <= record.random.value <= high and record.cap > 0, id
        assert record.random.about["episodes"] >= 64 and len(record.random.about["code"]) == 8, id
        for other in (record.reference, record.ours):
            assert other is None or np.isfinite(other.value) and other.what, id
        if record.ours:
            assert {"steps", "seeds", "seconds", "date"} <= set(record.ours.about), id
        assert record.top is None or record.top.value > record.random.value, id
        assert record.reference is None or record.top is record.reference, id


def test_normalized_is_zero_at_random_and_one_at_the_reference_and_keeps_the_shape():
    record = scores.of("CartPole-v1")
    ends = np.array([[record.random.value, record.top.value]])
    np.testing.assert_allclose(scores.normalized("CartPole-v1", ends), [[0, 1]], atol=1e-12)
    assert record.top is record.reference
    assert scores.normalized("CartPole-v1", (record.random.value + record.top.value) / 2) == pytest.approx(0.5)


def test_scores_of_motors_are_average_rewards():
    """By the return, who follows references for 1,000 steps at 0.05 each is worse than who fails in the tenth step."""
    id = "Cont-CC-PMSM-v0"
    record = scores.of(id)
    assert record.average and not scores.of("CartPole-v1").average
    ends = [1000 * record.reference.value, 20 * record.random.value]
    np.testing.assert_allclose(scores.normalized(id, ends, [1000, 20]), [1, 0], atol=1e-12)
    with pytest.raises(ValueError, match=f"{id}: its scores are average rewards, which need the lengths"):
        scores.normalized(id, ends)
    for lengths in ([1000, 0], [1000, 20, 30]):
        with pytest.raises(ValueError, match=rf"{id}: lengths of shape .*; they must be as many, and above 0"):
            scores.normalized(id, ends, lengths)
    assert scores.normalized("CartPole-v1", 500, 500) == scores.normalized("CartPole-v1", 500)


def test_average_rewards_are_sums_of_rewards_by_sums_of_steps(of_study):
    references = of_study("scores", "references")[0]
    value, (low, high) = references.averaged(np.array([-10.0, -50.0]), np.array([10, 1000]))
    assert value == pytest.approx(-60 / 1010) and low == pytest.approx(-1) and high == pytest.approx(-0.05)


def test_what_has_no_score_is_said():
    with pytest.raises(ValueError, match="CartPole-v1"):
        scores.of("CartPole-v2")
    bare = next(id for id in scores.ids() if scores.of(id).top is None)
    with pytest.raises(ValueError, match="only random's score"):
        scores.normalized(bare, 1.0)


def test_a_record_is_of_a_task_as_its_id_has_it():
    env, params = jaxrl.make("CartPole-v1")
    assert scores.record_of(env, params) == scores.of("CartPole-v1")
    assert scores.record_of(env, params.replace(length=jnp.float32(0.7))) is None
    assert scores.record_of(*jaxrl.make("Maze-v0", height=5, width=5)) is None
    env, params = jaxrl.make("Quadcopter-Hover-v0")
    assert scores.record_of(env, params) is not None
    thrust = params.model.replace(thrust=params.model.thrust * 2)  # 3e-10
    assert scores.record_of(env, params.replace(model=thrust)) is None


@pytest.mark.parametrize("id", ["CartPole-v1", "Cont-CC-PMSM-v0"])
def test_random_was_measured_as_it_says(id):
    env, params = jaxrl.make(id)
    act = at_random(env, params).act
    found = episodes(act, (), jax.random.key(9), env, params, num_episodes=512, max_steps=500)
    value = found.returns.sum() / (found.lengths.sum() if scores.of(id).average else 512)
    low, high = scores.of(id).random.interval
    assert abs(float(value) - (low + high) / 2) < 3 * (high - low)  # 512 episodes have twice the interval


def test_actions_at_random_are_of_all_agents():
    env, params = jaxrl.make("Quadcopter-Flock-v0")
    act = at_random(env, params).act
    returns = episodes(act, (), jax.random.key(0), env, params, num_episodes=3, max_steps=4).returns
    assert returns.shape == (3, env.num_agents) and len(np.unique(np.asarray(returns))) > env.num_agents


def test_the_hash_of_an_environments_code_sees_what_it_is_made_of(of_study):
    code, run = of_study("scores", "hashes", "run")
    assert "jaxrl.envs.classic.two_link" in code.imports("jaxrl.envs.classic.acrobot", code.ENVIRONMENTS)
    assert "jaxrl.envs.grid.engine" in code.imports("jaxrl.envs.grid.minigrid.empty", code.ENVIRONMENTS)
    assert code.of("MiniGrid-Empty-5x5-v0") != code.of("MiniGrid-Empty-8x8-v0")  # their settings
    one, other, changed = (code.dumped(ast.parse(text)) for text in ('"""A."""\nx = 1  # one', "x = 1", "x = 2"))
    assert one == other != changed
    drawn = {id: run.draws(*jaxrl.make(id)) for id in ("Maze-v0", "GridWorld-small-v0", "Darkroom-v0")}
    assert drawn == {"Maze-v0": True, "GridWorld-small-v0": False, "Darkroom-v0": False}


def test_the_hash_of_a_learner_sees_its_code_and_its_settings(of_study):
    code = of_study("scores", "hashes")[0]
    settings = registry.settings("c51", "Acrobot-v1")
    assert settings == registry.tuned("c51", "Acrobot-v1")  # before the family's
    once = code.of_learner("c51", settings)
    assert once == code.of_learner("c51", settings._replace(config=dict(reversed(settings.config.items()))))
    assert once != code.of_learner("c51", settings._replace(total_steps=1))
    assert once != code.of_learner("c51", settings._replace(hyper={**settings.hyper, "gamma": 0.9}))
    assert once != code.of_learner("c51", settings._replace(env={"encoding": "one_hot"}))
    assert once != code.of_learner("qr_dqn", settings)
    id = "TMaze-v0"
    row = {"what": "ppo_rnn", "code": code.of(id), "learner": code.of_learner(*code.learner(id))}
    of_code, of_settings = row["learner"].split("-")
    assert not code.other_code(id, {"ours": row}) and not code.other_code(id, {})
    assert code.other_code(id, {"ours": {**row, "learner": f"0-{of_settings}"}})
    assert not code.other_code(id, {"ours": {**row, "learner": f"0-{of_settings}0"}})
    assert not code.other_code(id, {"ours": {**row, "learner": f"0-{of_settings}", "code": "0"}})
    assert code.LEARNERS + ".on_policy.ppo" in code.imports(code.LEARNERS + ".on_policy.ppo_rnn", code.LEARNERS)


def test_rows_are_kept_where_the_fingerprints_are(of_study, monkeypatch, tmp_path):
    """`run.py same`: not without a stored fingerprint, not where it differs, and else with the hash of now."""
    code, run = of_study("scores", "hashes", "run")
    id = "TMaze-v0"
    now = code.of_learner(*code.learner(id))
    old = f"00000000-{now.split('-')[1]}"
    ours = {"what": "ppo_rnn", "value": 1.0, "code": code.of(id), "learner": old}
    table, answer = {id: {"cap": 9, "random": {}, "ours": ours}}, 1
    for name in ("again.json", "drawn.json"):
        (tmp_path / name).write_text(f'{{"learner": "{old}"}}')
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "read", lambda: table)
    monkeypatch.setattr(run, "write", lambda table: None)
    monkeypatch.setattr(run.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=answer))
    with pytest.raises(SystemExit, match="no stored fingerprint"):
        run.keep("not_an_algorithm")
    with pytest.raises(SystemExit, match="computes other numbers"):
        run.keep("ppo_rnn")
    assert ours["learner"] == old
    answer = 0
    run.keep("ppo_rnn")
    assert ours["learner"] == now and now in (tmp_path / "drawn.json").read_text()


def test_every_id_has_a_recipe_that_its_algorithm_takes():
    for id in registry.environments():
        algo = registry.family_algo(id)
        settings, module = registry.settings(algo, id), jaxrl.get_algo(algo)
        config, _ = module.Config(**settings.config), module.Hyper(**settings.hyper)
        assert settings.total_steps > 0, id
        if "Flock" in id or "Formation" in id or "Leader" in id or "Meetup" in id:
            assert config.num_envs % jaxrl.make(id)[0].num_agents == 0, id
    assert registry.family_algo("MiniGrid-MultiRoom-N6-v0") == "rnd"
    assert registry.family_algo("MiniGrid-MemoryS11-v0") == "ppo_rnn"  # what is remembered
    assert registry.settings("sac", "MiniGrid-MultiRoom-N6-v0") is None  # no recipe of that algorithm
    assert registry.settings("ppo", "my/tank.py:Tank") is None


def test_no_recipe_is_for_nothing():
    rows = tomllib.loads((scores.FILE.parent / "recipes.toml").read_text())["recipe"]
    ids, matches = registry.environments(), fnmatch.fnmatchcase
    rows_of = {id: [i for i, row in enumerate(rows) if any(matches(id, x) for x in row["ids"])] for id in ids}
    for i, row in enumerate(rows):
        for pattern in row["ids"]:
            assert any(matches(id, pattern) and rows_of[id][0] == i for id in ids), pattern


def test_a_learner_that_forgets_is_scored_by_the_episodes_it_learned_in(of_study):
    learners = of_study("scores", "learners")[0]
    found = learners.learned("BernoulliBandit-v0", "thompson", registry.Tuned(2000, {}, {}), 1000, seeds=(2, 2))
    random = scores.of("BernoulliBandit-v0").random.value
    assert found.returns.shape == (2,) and np.all(found.returns > random + 100)  # the best arm's mean is about 0.91


def test_a_learner_trains_agents_of_a_swarm_as_slots_and_ends_tasks_without_limit(of_study):
    learners = of_study("scores", "learners")[0]
    small = registry.Tuned(256, {"num_envs": 8, "num_steps": 8, "num_minibatches": 1, "num_epochs": 1}, {})
    for id, cap in (("Quadcopter-Flock-v0", 4), ("Chain-v0", 1000)):
        found = learners.learned(id, "ppo", small, cap, seeds=(1, 1))
        assert found.returns.shape == (1,) and np.isfinite(found.returns).all()


def test_references_of_tables_are_what_the_best_policy_gets(of_study):
    references = of_study("scores", "references")[0]
    known = {"TwoSidedChain-v0": 10.0, "CliffWalking-v1": -13.0, "WindyGridworld-v0": -15.0, "TwoStepTree-v0": 2.0}
    for id, value in known.items():  # by hand, and of the books that they are from
        assert references.reference(id)["value"] == pytest.approx(value, abs=1e-5), id
    assert references.reference("FrozenLake-v1")["value"] == pytest.approx(0.7442, abs=1e-4)
    assert references.reference("Maze-v0") is None  # its levels have a solver


def test_the_best_return_counts_the_steps_that_are_left(of_study):
    """Two states; the second pays 1 a step, and it takes one step, which pays 0.5, to go there."""
    references = of_study("scores", "references")[0]
    to, reward = jnp.array([[[0], [1]], [[1], [1]]]), jnp.array([[[0.0], [0.5]], [[1.0], [1.0]]])
    mdp = MDP(jnp.ones((2, 2, 1)), to, reward, jnp.zeros((2, 2, 1), bool), jnp.array([1.0, 0.0]))
    for steps in (1, 2, 5):
        assert references.best_return(mdp, steps) == pytest.approx(steps - 0.5)


@pytest.mark.slow
def test_each_recipe_makes_its_algorithm_on_a_task_of_each_pattern():
    for row in tomllib.loads((scores.FILE.parent / "recipes.toml").read_text())["recipe"]:
        for pattern in row["ids"]:
            ids = [
                id for id in registry.environments() if fnmatch.fnmatchcase(id, pattern) and registry.is_available(id)
            ]
            first = next((id for id in ids if registry.family_algo(id) == row["algo"]), None)
            if first is not None:
                settings, module = registry.settings(row["algo"], first), jaxrl.get_algo(row["algo"])
                env = jaxrl.make(first, **settings.env)[0]
                assert env.num_agents > 1 or module.make(env, module.Config(**settings.config)).steps_per_update > 0


def test_what_is_of_other_code_is_stale(of_study):
    code = of_study("scores", "hashes")[0]
    now, learner = code.of("Chain-v0"), code.of_learner(*code.learner("Chain-v0"))
    row = {"code": now}
    assert not code.stale("Chain-v0", "random", {"random": row}) and code.stale("Chain-v0", "random", {"random": {}})
    assert not code.stale("Chain-v0", "reference", {"reference": row}) and code.stale("Chain-v0", "reference", {})
    assert not code.stale("Chain-v0", "reference", {"no_reference": now})
    assert code.stale("Chain-v0", "reference", {"no_reference": "0"})
    told = {"random": row, "ours": {**row, "learner": learner}}
    assert not code.stale("Chain-v0", "ours", told) and code.stale("Chain-v0", "ours", {"random": row})
    assert code.stale("Chain-v0", "ours", {"random": row, "ours": {**row, "learner": "0"}})
    assert not code.stale("Chain-v0", "ours", {"random": row, "ours": {"source": "docs/results.md"}})


def test_noise_above_random_is_nothing_learned():
    score = scores.Score
    random, above, noise = (
        score(1.0, (0.9, 1.1), "random", {}),
        score(2.0, (1.2, 2.5), "ppo", {}),
        score(1.2, (1.0, 1.4), "ppo", {}),
    )
    assert scores.Record("x", 9, random, None, above).top is above
    assert scores.Record("x", 9, random, None, noise).top is None
    assert scores.Record("x", 9, random, above, noise).top is above


@pytest.mark.slow
def test_the_search_finds_the_fewest_steps(of_study):
    optima = of_study("scores", "optima")[0]
    found = optima.optimum("MiniGrid-Empty-5x5-v0")["returns"]
    np.testing.assert_allclose(found, 1 - 0.9 * 5 / 100, atol=1e-6)  # two ahead, a turn, two ahead
    returns = optima.optimum("MiniGrid-Empty-Random-5x5-v0")["returns"]
    env, params = jaxrl.make("MiniGrid-Empty-Random-5x5-v0")
    starts = jax.vmap(env.reset, (0, None))(jax.random.split(jax.random.key(0), optima.LEVELS), params)[1]
    for best, cell, direction in zip(returns, starts.position, starts.direction, strict=True):
        down, right = (3 - int(x) for x in divmod(int(cell), 5))
        turns = [min((int(direction) - to) % 4, (to - int(direction)) % 4) for to in (0, 1)]
        turn = 1 + min(turns) if down and right else turns[0] if right else turns[1]
        assert best == pytest.approx(1 - 0.9 * (down + right + turn) / 100), (down, right, direction)
    assert optima.optimum("MiniGrid-Dynamic-Obstacles-5x5-v0") is None
