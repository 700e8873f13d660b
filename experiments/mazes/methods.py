"""The students and the curricula of run.py."""

from typing import Any, NamedTuple

from student import MazeActorCritic

import jaxrl
from jaxrl.algos import ppo_rnn
from jaxrl.algos.curricula import accel, dr, paired, plr, sfl
from jaxrl.curriculum.attachment import attach
from jaxrl.curriculum.scores import learnability, max_mc
from jaxrl.envs.grid.maze import editor as maze_editor

ENV, PARAMS = jaxrl.make("Maze-v0")
PARAMS = PARAMS.replace(walls=60)


class Setting(NamedTuple):
    config: ppo_rnn.Config
    network: Any  # None: the one that `config` describes
    hyper: ppo_rnn.Hyper
    buffer_size: int
    look: sfl.Config
    designer: ppo_rnn.Config


STUDENT = Setting(
    ppo_rnn.Config(
        num_envs=32,
        num_steps=256,
        num_epochs=4,
        num_minibatches=2,
        conv=(16,),
        hidden=(),
        rnn_size=64,
        shared=True,
    ),
    None,
    ppo_rnn.Hyper(learning_rate=1e-3, gamma=0.995, gae_lambda=0.95, ent_coef=1e-2),
    512,
    sfl.Config(buffer_size=128, num_levels=2048, num_steps=512, chunk=512, refresh_every=50),
    ppo_rnn.Config(num_envs=32, num_steps=62, num_minibatches=2, conv=(16,), hidden=(), rnn_size=64, shared=True),
)
# JaxUED's; a designer as minimax's.
PUBLISHED = Setting(
    ppo_rnn.Config(num_envs=32, num_steps=256, num_epochs=5, num_minibatches=1),
    MazeActorCritic(),
    ppo_rnn.Hyper(learning_rate=1e-4, gamma=0.995, gae_lambda=0.98, ent_coef=1e-3),
    4000,
    sfl.Config(chunk=1000),
    ppo_rnn.Config(
        num_envs=32, num_steps=62, num_epochs=5, num_minibatches=1, conv=(128,), hidden=(), rnn="lstm", rnn_size=256
    ),
)


def algorithm(method: str, setting: Setting, updates: int) -> tuple[Any, Any, Any]:
    """`(algorithm, hyper, params of the level distribution)` of a run of so many updates."""
    hyper = setting.hyper
    if setting is PUBLISHED:
        hyper = hyper.replace(anneal_steps=updates * setting.config.num_envs * setting.config.num_steps)
    if method == "dr":  # a maze an episode
        return ppo_rnn.make(ENV, setting.config, network=setting.network), hyper, PARAMS
    env = ENV.as_levels()
    venv = jaxrl.vectorize(env, setting.config.num_envs, batched_params=True)
    student = ppo_rnn.make(venv, setting.config, network=setting.network)
    size = setting.buffer_size
    score = learnability if method.endswith("_learnability") else max_mc
    if method == "dr_rollout":
        return attach(student, dr.make(ENV.generate)), hyper, PARAMS
    if method.startswith("plr"):
        config = plr.Config(size, robust=method != "plr", parallel=method == "plr_parallel")
        # minimax's are 0.3 and 0.5 for the parallel one
        replay = plr.Hyper(replay_prob=0.5, min_fill=0.25, temperature=0.3, staleness=0.5 if config.parallel else 0.3)
        return attach(student, plr.make(ENV.generate, config, replay, score=score)), hyper, PARAMS
    if method == "sfl":
        return attach(student, sfl.make(ENV.generate, setting.look)), hyper, PARAMS
    if method == "paired":
        editor, editor_params = jaxrl.make("MazeEditor-v0")
        designer = ppo_rnn.make(editor, setting.designer)
        steps = setting.designer.num_envs * setting.designer.num_steps
        of_designer = hyper.replace(ent_coef=0.05, anneal_steps=(hyper.anneal_steps > 0) * updates * steps)
        return paired.make(student, designer, maze_editor.level, designer_hyper=of_designer), hyper, editor_params
    replay = accel.Hyper(replay_prob=0.8, min_fill=0.25, temperature=0.3, staleness=0.5)
    grow = accel.make(ENV.generate, env.mutate, accel.Config(size), replay, score=score)
    return attach(student, grow), hyper, PARAMS.replace(walls=0)


METHODS = (
    "dr",
    "dr_rollout",
    "plr",
    "plr_robust",
    "plr_learnability",
    "plr_parallel",
    "accel",
    "accel_learnability",
    "sfl",
    "paired",
)
