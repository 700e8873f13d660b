"""`jaxrl eval`: full episodes of the trained policies."""

from __future__ import annotations

import dataclasses
import difflib
import math
import sys
from pathlib import Path
from typing import Annotated, Any

from jaxrl.host.cli.experiment import AtFlags, MovedFlags, at_of, episode_cap
from jaxrl.host.cli.flags import WORDS, Act, at_least_one, greedy_of, key_of, parse, positional


def evaluate_command(args: list[str]) -> int:
    @dataclasses.dataclass
    class Eval(MovedFlags, AtFlags):
        run: Annotated[Path, positional()]
        """Run folder, or zoo:NAME."""
        episodes: int = 128
        seed: int | None = None
        """Which of the run's seeds. Default: all of them."""
        key: int = 0
        """Of the episodes' random numbers: each gives other episodes."""
        max_steps: int | None = None
        """Cap on the length of an episode. Default: that of the run's own evaluations."""
        act: Act | None = None
        """How the policy acts. Default: as the algorithm is deployed, which the result says."""
        hold: tuple[int, ...] = ()
        """Steps for which each action is held, as where decisions are slow: 1 2 4 8 shows what that costs. A run
        with ActionRepeat repeats so often instead."""
        attack: tuple[str, ...] = ()
        """Attacks and their strengths, each alone, as random=0.1 policy=0.1 action=0.2 dynamics.mass=0.2. random and
        policy move each number of the observation by up to the strength, by chance or as changes the policy's action
        most; directed first trains who directs such changes, for 200,000 steps of the task; action mixes in random
        actions; dynamics draws the named parameters (a,b: several) of each episode, up to a share larger or smaller."""
        cell: tuple[float, ...] = ()
        """Of a run of quality diversity: the policy found for these descriptors, as --cell 0.3 0.7, instead of the
        best."""

    flags = parse(Eval, args, "jaxrl eval", "Full episodes of each seed's policy.")
    at_least_one("--max-steps", flags.max_steps)
    for hold in flags.hold:
        at_least_one("--hold", hold)
    attacks = [attack_of(word) for word in flags.attack]
    if attacks and flags.hold:
        raise ValueError("--attack and --hold: give one of them, each is judged alone.")
    import jax
    import numpy as np

    from jaxrl.algorithm import deployment
    from jaxrl.evaluation import evaluate
    from jaxrl.host.run import ram
    from jaxrl.zoo import policies_of

    choose = None
    if flags.cell:
        from jaxrl.host.run import archives

        def choose(algo, state):
            return archives.policies_at(algo, state, flags.run, flags.cell, flags.seed)

    found = policies_of(flags.run, flags.dataset, at_of(flags.at), choose)
    algo, policies, task, params, seeds, own_cap, reference, _ = found
    if flags.seed is not None and not 0 <= flags.seed < seeds:
        raise ValueError(f"--seed {flags.seed}: the run has seeds 0 to {seeds - 1}.")
    which = range(seeds) if flags.seed is None else range(flags.seed, flags.seed + 1)
    cap = flags.max_steps or episode_cap(params, own_cap)

    parts = {"the episodes": len(which) * flags.episodes * ram.episode_size(task, params)}
    ram.require_room(parts, f"--episodes {flags.episodes}", "evaluate fewer at once")

    how: dict[str, Any] = {"num_episodes": flags.episodes, "max_steps": cap, "greedy": greedy_of(flags.act)}

    def returns(policy, key):
        return evaluate(algo, policy, key, task, params, **how)

    at = slice(which.start, which.stop)  # a seed's episodes are the same alone and among all
    keys = jax.random.split(key_of(flags.key, "--key"), seeds)[at]
    policies = jax.tree.map(lambda x: x[at], policies)
    if flags.hold:
        print_held(flags.hold, algo, policies, keys, task, params, how)
        return 0
    if attacks:
        print_attacked(attacks, algo, policies, keys, task, params, how)
        return 0
    stats = jax.jit(jax.vmap(returns))(policies, keys)
    mean = np.asarray(stats.returns.mean(1))
    lengths = np.asarray(stats.lengths.mean(1))
    for seed, value, length in zip(which, mean, lengths, strict=True):
        print(f"seed {seed}: return {value:.2f}, length {length:.1f}")
    acts = WORDS[deployment(algo, greedy_of(flags.act))]
    print(f"return {summary(mean)} over {flags.episodes} full episodes a seed, {acts}")
    if reference is not None:
        print_score(mean, reference, params, cap)
    print_normalized(mean, lengths, task, params, cap)
    return 0


ATTACKS = "random", "policy", "directed", "action", "dynamics"
DIRECTOR_STEPS = 200_000
"""Steps of the task in which PPO learns to direct an attack, of each policy and strength anew."""


def attack_of(word: str) -> tuple[str, float]:
    """The attack and its strength of a word as `random=0.1` or `dynamics.mass=0.1`. Raises ValueError for others."""
    name, _, strength = word.partition("=")
    kind, _, of = name.partition(".")
    if kind not in ATTACKS or (of and kind != "dynamics"):
        near = difflib.get_close_matches(kind, ATTACKS, 1)
        hint = f"did you mean {near[0]}=0.1?" if near else f"there are {', '.join(ATTACKS)}, as in random=0.1."
        raise ValueError(f"--attack {word}: no such attack; {hint}")
    if kind == "dynamics" and not of:
        raise ValueError(f"--attack {word}: say which parameters of the task, as in dynamics.mass,length=0.1.")
    try:
        value = float(strength)
    except ValueError:
        raise ValueError(f"--attack {word}: the strength must be a number, as in {name}=0.1.") from None
    ends: dict[str, tuple[bool, str]] = {
        "action": (0 <= value <= 1, "from 0 to 1"),
        "dynamics": (0 <= value < 1, "from 0 to below 1"),
    }
    fits, allowed = ends.get(kind, (0 <= value < math.inf, "a finite number of at least 0"))
    if not fits:
        raise ValueError(f"--attack {word}: the strength must be {allowed}.")
    return name, value


def under_attack(kind: str, algo: Any, task: Any) -> Any:
    """The task under one of `ATTACKS` that does not learn, `dynamics.` with its parameters. Raises ValueError as
    `acting`, and for parameters that the task does not have."""
    from jaxrl.wrappers import ActionAttack, ActionDifference, DynamicsAttack, ObservationAttack

    kind, _, names = kind.partition(".")
    if kind == "dynamics":
        return DynamicsAttack(task, tuple(names.split(",")))
    if kind != "policy":
        return ActionAttack(task) if kind == "action" else ObservationAttack(task)
    return ObservationAttack(task, ActionDifference(acting(kind, algo, task)), steps=4)


def acting(kind: str, algo: Any, task: Any) -> Any:
    """`(policy, obs) -> action`, with derivatives. Raises ValueError where there are none for the attack to follow."""
    import jax

    from jaxrl.spaces import Box

    space = task.action_space(task.default_params)
    remembers = jax.tree.leaves(algo.initial_carry((1,)))
    if not isinstance(space, Box) or remembers:
        why = f"{algo.name} remembers its past" if remembers else f"{task.id} acts in {space}, without derivatives"
        raise ValueError(f"--attack {kind}: {why}; random=0.1 and action=0.1 are for any policy.")
    return lambda policy, obs: algo.act(policy, jax.random.key(0), obs, algo.initial_carry(()), greedy=True)[0]


def directed(algo: Any, task: Any) -> tuple[Any, Any]:
    """The task under the attack of PA-AD (`DirectedAttack`), and `(key, policy, params, strength) -> victim`, which
    trains the director and gives what the attack reads."""
    import jax
    import jax.numpy as jnp

    from jaxrl import registry
    from jaxrl.algorithm import train
    from jaxrl.wrappers import DirectedAttack, ObservationAttack

    act, ppo = acting("directed", algo, task), registry.get_algo("ppo")
    directing = DirectedAttack(task, lambda policy, key, obs: act(policy, obs), act)
    sizes = {"num_envs": 32, "num_steps": 64, "num_epochs": 5, "num_minibatches": 16, "activation": "silu"}
    learner = ppo.make(directing, ppo.Config(**sizes, normalize_obs=True, normalize_reward=True, clip_value=False))
    hyper = ppo.Hyper(learning_rate=1e-3, anneal_steps=DIRECTOR_STEPS, gamma=0.95, ent_coef=0.0, max_grad_norm=10.0)

    def loss(victim, obs, seen):
        policy, director = victim
        direction = learner.act(director, jax.random.key(0), obs, (), greedy=True)[0]
        return jnp.dot(jnp.clip(direction, -1, 1), jnp.ravel(act(policy, seen)))

    def victim(key, policy, params, strength):
        state, _ = train(learner, key, DIRECTOR_STEPS, hyper, directing.attacking(params, strength, victim=policy))
        return policy, learner.policy(state)

    return ObservationAttack(task, loss), victim


def print_held(
    holds: tuple[int, ...], algo: Any, policies: Any, keys: Any, task: Any, params: Any, how: dict[str, Any]
) -> None:
    """A line for each number of steps that actions are held, and the mean over them, by the trapezoidal rule.

    `how` is what `evaluate` takes by keyword. A run with ActionRepeat repeats so often instead, so that what remembers
    observations sees those of decisions, as it did in training.
    """
    import jax
    import numpy as np

    from jaxrl.evaluation import evaluate
    from jaxrl.wrappers.by_name import repeated, repeats

    decision, cap = repeats(task), how["max_steps"]

    def returns(policy, key, hold):
        stats = evaluate(algo, policy, key, task, params, **how, hold=hold)
        return stats.returns.mean(), stats.lengths.mean()

    def returns_repeated(policy, key, hold):
        slow = how if cap is None else {**how, "max_steps": -(-cap * decision // hold)}
        stats = evaluate(algo, policy, key, repeated(task, hold), params, **slow)
        return stats.returns.mean(), stats.lengths.mean()

    if algo.slower is not None and decision > 1:
        raise ValueError(
            f"--hold: {algo.name} plans sequences, and its run repeats actions, too; it is judged without."
        )
    if decision == 1:  # one program for all
        run = jax.jit(jax.vmap(returns, (0, 0, None)))
    else:
        run = jax.jit(jax.vmap(returns_repeated, (0, 0, None)), static_argnums=2)
    holds = tuple(sorted(set(holds)))
    means, lengths = np.swapaxes([run(policies, keys, hold) for hold in holds], 0, 1)  # (holds, seeds)
    for hold, mean, length in zip(holds, means, lengths, strict=True):
        print(f"held for {hold}: return {summary(mean)}")
        print_normalized(mean, length, task, params, cap, "  ")
    if len(holds) > 1:
        area = np.trapezoid(means, holds, axis=0) / (holds[-1] - holds[0])
        print(f"mean over {holds[0]} to {holds[-1]}: return {summary(area)}")
        print_normalized(area, None, task, params, cap, "  ")


def print_attacked(
    attacks: list[tuple[str, float]], algo: Any, policies: Any, keys: Any, task: Any, params: Any, how: dict[str, Any]
) -> None:
    """A line for each attack and strength. `how` is what `evaluate` takes by keyword."""
    import jax
    import numpy as np

    from jaxrl.evaluation import evaluate

    def runner(kind):
        learns = kind == "directed"
        attacked, trained = directed(algo, task) if learns else (under_attack(kind, algo, task), None)

        def returns(policy, key, strength):
            learn_key = jax.random.fold_in(key, 1)
            victim = policy if trained is None else trained(learn_key, policy, params, strength)
            under = attacked.attacking(params, strength, victim=victim)
            stats = evaluate(algo, policy, key, attacked, under, **how)
            return stats.returns.mean(), stats.lengths.mean()

        return jax.jit(jax.vmap(returns, (0, 0, None)))

    for kind in dict(attacks):
        run = runner(kind)
        for strength in [np.float32(strength) for name, strength in attacks if name == kind]:
            if kind == "directed":
                print(f"training a director of {strength:g} for {DIRECTOR_STEPS:,} steps", file=sys.stderr)
            mean, length = map(np.asarray, run(policies, keys, strength))
            print(f"{kind} {strength:g}: return {summary(mean)}")
            print_normalized(mean, length, task, params, how["max_steps"], "  ")


def print_normalized(returns: Any, lengths: Any, task: Any, params: Any, cap: int | None, of: str = "") -> None:
    """Returns, one a seed, as shares of the way from random's to the top of record, where there is one of this task.

    Args:
        lengths: of these episodes, which records of average rewards need; None: not known.
    """
    import numpy as np

    from jaxrl import scores
    from jaxrl.wrappers.agents import Team
    from jaxrl.wrappers.by_name import repeats

    record = scores.record_of(task.env if isinstance(task, Team) else task, params)
    longest = int(np.max(np.asarray(params.max_steps)))
    if record is None or record.top is None or min(longest, cap or longest) != record.cap:
        return
    if record.average and (lengths is None or repeats(task) > 1):  # of repeated actions they count decisions
        print(f"{of}not normalized: scores of {record.id} are average rewards, and lengths are not known here")
        return
    low, high = f"{record.random.value:.4g}", f"{record.top.value:.4g}"
    got = scores.normalized(record.id, returns, lengths)
    unit = "an average reward of " if record.average else ""
    print(f"{of}normalized {summary(got)}: 0 is {unit}{low} (random actions), 1 is {high} ({record.top.what})")


def print_score(returns: Any, reference: dict[str, Any], params: Any, cap: int | None) -> None:
    """Normalised scores, where episodes may last as long as the reference's: 0 is random's return, 100 the best that
    the dataset's file knows."""
    import numpy as np

    random, best = reference["random"], reference["best"]
    longest = int(np.max(np.asarray(params.max_steps)))
    if min(longest, cap or longest) == reference["max_steps"]:
        score = 100 * (returns - random) / (best - random)
        print(f"score {summary(score)}: 0 is random's return, {random:.4g}, 100 the best that is known, {best:.4g}")


def summary(returns: Any) -> str:
    """Mean, IQM and bootstrap interval of one return a seed, in words."""
    from jaxrl.host.statistics import bootstrap_interval, iqm

    if len(returns) == 1:
        return f"{returns[0]:.2f}"
    low, high = bootstrap_interval(returns)
    return f"{returns.mean():.2f} (IQM {iqm(returns):.2f}, 95 % interval {low:.2f} to {high:.2f}, {len(returns)} seeds)"
