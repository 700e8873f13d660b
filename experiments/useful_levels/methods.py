"""The curricula of run.py: which are one program, and the settings by which they differ."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from tasks import Drawn, Family

import jaxrl
from jaxrl import curriculum
from jaxrl.algorithm import Algorithm
from jaxrl.algos import ppo
from jaxrl.algos.curricula import accel, alp_gmm, paired, plr, sfl, traced
from jaxrl.curriculum import learnability, max_mc, oracle_regret, positive_value_loss

BUFFER = 256


class Method(NamedTuple):
    title: str
    curriculum: str  # what is compiled
    settings: dict[str, float]  # of the curriculum
    solvable_only: bool = False  # the level function draws solvable levels only


REPLAY = {"replay_prob": 0.5, "min_fill": 0.2, "temperature": 1.0}
METHODS = {
    # Level replay that never replays is domain randomisation: new levels in each rollout, and all are learned from.
    "dr": Method("domain randomisation", "plr learnability", {"replay_prob": 0.0}),
    "solvable": Method("domain randomisation of solvable levels", "plr learnability", {"replay_prob": 0.0}, True),
    "plr": Method("PLR by MaxMC", "plr max_mc", REPLAY),
    "robust_plr": Method("robust PLR by MaxMC", "robust max_mc", REPLAY),
    "plr_learnability": Method("PLR by learnability", "plr learnability", REPLAY),
    "plr_regret": Method("PLR by known regret", "plr regret", REPLAY),
    "accel": Method("ACCEL by MaxMC", "accel max_mc", REPLAY),
    "traced": Method("TRACED", "traced pvl", REPLAY),
    "accel_pvl": Method("ACCEL by PVL", "accel pvl", REPLAY),
    "sfl": Method("SFL", "sfl learnability", {"replay_share": 0.5}),
    "sfl_regret": Method("SFL by known regret", "sfl regret", {"replay_share": 0.5}),
    "alp_gmm": Method("ALP-GMM", "alp_gmm none", {}),
    "paired": Method("PAIRED", "paired none", {}),
}


@functools.cache
def student_of(family: Family) -> Algorithm:
    return ppo.make(jaxrl.vectorize(family.env, family.config.num_envs, batched_params=True), family.config)


def under(student: Algorithm, family: Family, chosen: str) -> Algorithm:
    """The student under a curriculum, `Method.curriculum`."""
    kind, by = chosen.split()
    scores = {"learnability": learnability, "max_mc": max_mc, "pvl": positive_value_loss}
    score = oracle_regret(family.optimal_value) if by == "regret" else scores.get(by)
    attach = functools.partial(curriculum.attach, student, success_above=family.success_above)
    if kind == "sfl":
        return attach(sfl.make(family.level, family.look, score=score))
    if kind == "accel":
        config = accel.Config(BUFFER, robust=False, num_edits=5)
        return attach(accel.make(family.level, family.mutate, config, score=score))
    if kind == "traced":
        config = traced.Config(BUFFER, robust=False, num_edits=5, model_size=32)
        return attach(traced.make(family.env, family.level, family.mutate, config))
    if kind == "paired":
        config = dataclasses.replace(family.config, num_steps=family.editor.num_steps, conv=(16,))
        return paired.make(student, ppo.make(family.editor, config), family.editor.level)
    if kind == "alp_gmm":

        def level_at(drawn: Drawn, x: jax.Array) -> Any:
            return family.level_at(drawn.params, x)

        return attach(alp_gmm.make(level_at, alp_gmm.Config(2, history=1000), alp_gmm.Hyper(0.0, 1.0)))
    return attach(plr.make(family.level, plr.Config(BUFFER, robust=kind == "robust"), score=score))


def settings(method: str, family: Family, hyper: Any, tuned: tuple[str, ...]) -> tuple[Any, Drawn]:
    """`(settings, params)` of a method; `tuned` are others, NAME=VALUE, of the student or of the curriculum."""
    chosen = METHODS[method]
    if method == "paired":
        designer = hyper.designer.replace(learning_rate=jnp.float32(1e-3), ent_coef=jnp.float32(0.05))  # as JaxUED's
        return hyper.replace(designer=designer), family.design
    changes = {**chosen.settings, **{name: float(value) for name, value in (x.split("=") for x in tuned)}}
    own = {name: jnp.float32(value) for name, value in changes.items() if hasattr(hyper.curriculum, name)}
    others = {name: jnp.float32(value) for name, value in changes.items() if name not in own}
    hyper = hyper.replace(curriculum=hyper.curriculum.replace(**own), **others)
    return hyper, Drawn(family.params, jnp.bool_(chosen.solvable_only))
