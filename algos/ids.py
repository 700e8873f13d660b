"""The algorithms and curricula of this folder."""

from __future__ import annotations

ALGORITHMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "a2c": ("a2c", ("Discrete", "MultiDiscrete", "Box")),
    "alphazero": ("alphazero", ("Discrete",)),
    "apg": ("apg", ("Box",)),
    "c51": ("c51", ("Discrete",)),
    "crossq": ("crossq", ("Box",)),
    "ddpg": ("ddpg", ("Box",)),
    "dpt": ("meta.dpt", ()),
    "dqn": ("dqn", ("Discrete",)),
    "dyna_q": ("tabular.dyna_q", ()),
    "epsilon_greedy": ("bandits.epsilon_greedy", ()),
    "evolution": ("evolution", ("Discrete", "MultiDiscrete", "Box")),
    "exp3": ("bandits.exp3", ()),
    "gorp": ("tabular.gorp", ()),
    "iqn": ("iqn", ("Discrete",)),
    "lin_ts": ("bandits.lin_ts", ()),
    "lin_ucb": ("bandits.lin_ucb", ()),
    "nonstationary_ucb": ("bandits.nonstationary_ucb", ()),
    "ppo": ("ppo", ("Discrete", "MultiDiscrete", "Box")),
    "ppo_rnn": ("ppo_rnn", ("Discrete", "MultiDiscrete", "Box")),
    "pqn": ("pqn", ("Discrete",)),
    "pqn_rnn": ("pqn_rnn", ("Discrete",)),
    "props": ("props", ("Discrete", "MultiDiscrete", "Box")),
    "psrl": ("tabular.psrl", ()),
    "q_learning": ("tabular.q_learning", ()),
    "qr_dqn": ("qr_dqn", ("Discrete",)),
    "r_max": ("tabular.r_max", ()),
    "rainbow": ("rainbow", ("Discrete",)),
    "reinforce": ("reinforce", ("Discrete", "MultiDiscrete", "Box")),
    "rnd": ("rnd", ("Discrete", "MultiDiscrete", "Box")),
    "sac": ("sac", ("Discrete", "Box")),
    "sarsa": ("tabular.sarsa", ()),
    "sqirl": ("sqirl", ()),
    "stream_ac": ("streaming.stream_ac", ("Discrete", "MultiDiscrete", "Box")),
    "stream_q": ("streaming.stream_q", ("Discrete", "Box")),
    "stream_td": ("streaming.stream_td", ()),
    "successive_elimination": ("bandits.successive_elimination", ()),
    "td3": ("td3", ("Box",)),
    "thompson": ("bandits.thompson", ()),
    "ucb": ("bandits.ucb", ()),
    "ucb_vi": ("tabular.ucb_vi", ()),
    "whittle": ("bandits.whittle", ()),
}
"""Module, and the action spaces of those that learn on any environment with such a space."""

CURRICULA: dict[str, tuple[str, str]] = {
    "accel": ("curricula.accel", "levels"),
    "adr": ("curricula.adr", "points"),
    "alp_gmm": ("curricula.alp_gmm", "points"),
    "covar_gmm": ("curricula.covar_gmm", "points"),
    "dr": ("curricula.dr", "levels"),
    "oracle_teacher": ("curricula.oracle_teacher", "points"),
    "plr": ("curricula.plr", "levels"),
    "random_teacher": ("curricula.random_teacher", "points"),
    "riac": ("curricula.riac", "points"),
    "self_paced": ("curricula.self_paced", "points"),
    "sfl": ("curricula.sfl", "levels"),
}
"""Module of what `--curriculum NAME` puts around a student, and what it chooses: "levels" that a function draws, or
"points" of a box of parameters."""
