"""The algorithms and curricula of this folder."""

from __future__ import annotations

from jaxrl.data.learns import AlgorithmEntry, Learns

STEPS = Learns(data="transitions")
WITH_PRIORITIES = Learns(data="transitions", priorities=True)
IN_A_MODEL = Learns(data="transitions", model="predictor")
IN_ITS_MODEL = Learns(data="transitions", model="model_of")
PAIRS = Learns(acts=False, data="pairs")
OUTCOMES = Learns(acts=False, data="windows", goals=True)

ALGORITHMS: dict[str, AlgorithmEntry] = {
    "a2c": AlgorithmEntry("on_policy.a2c", ("Discrete", "MultiDiscrete", "Box")),
    "alphazero": AlgorithmEntry("model_based.alphazero", ("Discrete",)),
    "apg": AlgorithmEntry("model_based.apg", ("Box",)),
    "awac": AlgorithmEntry("actor_critic.awac", ("Box",), STEPS),
    "barfi": AlgorithmEntry("meta.barfi", ("Discrete", "MultiDiscrete", "Box")),
    "bc": AlgorithmEntry("actor_critic.bc", ("Discrete", "Box"), STEPS),
    "bcq_discrete": AlgorithmEntry("deep_q.bcq_discrete", ("Discrete",), WITH_PRIORITIES),
    "c51": AlgorithmEntry("deep_q.c51", ("Discrete",), WITH_PRIORITIES),
    "combo": AlgorithmEntry("model_based.combo", ("Box",), IN_A_MODEL),
    "cpl": AlgorithmEntry("preferences.cpl", (), PAIRS),
    "cql": AlgorithmEntry("actor_critic.cql", ("Box",), STEPS),
    "cql_discrete": AlgorithmEntry("deep_q.cql_discrete", ("Discrete",), WITH_PRIORITIES),
    "crossq": AlgorithmEntry("actor_critic.crossq", ("Box",), STEPS),
    "crr_discrete": AlgorithmEntry("deep_q.crr_discrete", ("Discrete",), WITH_PRIORITIES),
    "ddpg": AlgorithmEntry("actor_critic.ddpg", ("Box",), STEPS),
    "decision_transformer": AlgorithmEntry("sequence.decision_transformer", (), OUTCOMES),
    "disco": AlgorithmEntry("meta.disco", ()),
    "dpt": AlgorithmEntry("meta.dpt", ()),
    "dqn": AlgorithmEntry("deep_q.dqn", ("Discrete",), WITH_PRIORITIES),
    "dvl": AlgorithmEntry("actor_critic.dvl", ("Box",), STEPS),
    "dyna_q": AlgorithmEntry("tabular.dyna_q", ()),
    "edac": AlgorithmEntry("actor_critic.edac", ("Box",), STEPS),
    "epsilon_greedy": AlgorithmEntry("bandits.epsilon_greedy", ()),
    "evolution": AlgorithmEntry("population.evolution", ("Discrete", "MultiDiscrete", "Box")),
    "exp3": AlgorithmEntry("bandits.exp3", ()),
    "famo2o": AlgorithmEntry("actor_critic.famo2o", ("Box",), STEPS),
    "fb": AlgorithmEntry("actor_critic.fb", ("Discrete",), Learns(data="transitions", rewards=True)),
    "gorp": AlgorithmEntry("tabular.gorp", ()),
    "h2o": AlgorithmEntry("actor_critic.h2o", (), Learns(data="demonstrations")),
    "iql": AlgorithmEntry("actor_critic.iql", ("Box",), STEPS),
    "iqn": AlgorithmEntry("deep_q.iqn", ("Discrete",), WITH_PRIORITIES),
    "lin_ts": AlgorithmEntry("bandits.lin_ts", ()),
    "lin_ucb": AlgorithmEntry("bandits.lin_ucb", ()),
    "mex": AlgorithmEntry("actor_critic.mex", ("Box",), STEPS),
    "mopo": AlgorithmEntry("model_based.mopo", ("Box",), IN_ITS_MODEL),
    "morel": AlgorithmEntry("model_based.morel", ("Box",), IN_ITS_MODEL),
    "nonstationary_ucb": AlgorithmEntry("bandits.nonstationary_ucb", ()),
    "p_iql": AlgorithmEntry("preferences.p_iql", (), PAIRS),
    "ppo": AlgorithmEntry("on_policy.ppo", ("Discrete", "MultiDiscrete", "Box")),
    "ppo_rnn": AlgorithmEntry("on_policy.ppo_rnn", ("Discrete", "MultiDiscrete", "Box")),
    "pqn": AlgorithmEntry("deep_q.pqn", ("Discrete",)),
    "pqn_rnn": AlgorithmEntry("deep_q.pqn_rnn", ("Discrete",)),
    "props": AlgorithmEntry("on_policy.props", ("Discrete", "MultiDiscrete", "Box")),
    "psrl": AlgorithmEntry("tabular.psrl", ()),
    "q_learning": AlgorithmEntry("tabular.q_learning", ()),
    "qr_dqn": AlgorithmEntry("deep_q.qr_dqn", ("Discrete",), WITH_PRIORITIES),
    "r2d2": AlgorithmEntry("deep_q.r2d2", ("Discrete",)),
    "r_max": AlgorithmEntry("tabular.r_max", ()),
    "rainbow": AlgorithmEntry("deep_q.rainbow", ("Discrete",)),
    "ravl": AlgorithmEntry("model_based.ravl", ("Box",), IN_A_MODEL),
    "rebrac": AlgorithmEntry("actor_critic.rebrac", ("Box",), STEPS),
    "recoil": AlgorithmEntry("actor_critic.recoil", (), Learns(data="demonstrations")),
    "reinforce": AlgorithmEntry("on_policy.reinforce", ("Discrete", "MultiDiscrete", "Box")),
    "rem": AlgorithmEntry("deep_q.rem", ("Discrete",), WITH_PRIORITIES),
    "rnd": AlgorithmEntry("on_policy.rnd", ("Discrete", "MultiDiscrete", "Box")),
    "ro2o": AlgorithmEntry("actor_critic.ro2o", ("Box",), STEPS),
    "rvs": AlgorithmEntry("sequence.rvs", (), OUTCOMES),
    "sac": AlgorithmEntry("actor_critic.sac", ("Discrete", "Box"), STEPS),
    "sac_rnn": AlgorithmEntry("actor_critic.sac_rnn", ("Box",)),
    "sarsa": AlgorithmEntry("tabular.sarsa", ()),
    "sqirl": AlgorithmEntry("deep_q.sqirl", ()),
    "stac": AlgorithmEntry("meta.stac", ("Discrete", "MultiDiscrete", "Box")),
    "stream_ac": AlgorithmEntry("streaming.stream_ac", ("Discrete", "MultiDiscrete", "Box")),
    "stream_q": AlgorithmEntry("streaming.stream_q", ("Discrete", "Box")),
    "stream_td": AlgorithmEntry("streaming.stream_td", ()),
    "successive_elimination": AlgorithmEntry("bandits.successive_elimination", ()),
    "td3": AlgorithmEntry("actor_critic.td3", ("Box",), STEPS),
    "td3_bc": AlgorithmEntry("actor_critic.td3_bc", ("Box",), STEPS),
    "td3_rnn": AlgorithmEntry("actor_critic.td3_rnn", ("Box",)),
    "thompson": AlgorithmEntry("bandits.thompson", ()),
    "ucb": AlgorithmEntry("bandits.ucb", ()),
    "ucb_vi": AlgorithmEntry("tabular.ucb_vi", ()),
    "uni_o4": AlgorithmEntry("actor_critic.uni_o4", (), Learns(acts=False, data="transitions", model="predictor")),
    "whittle": AlgorithmEntry("bandits.whittle", ()),
}
"""For each algorithm its module, the action spaces in which it learns on any environment, and a `Learns` where it does
not learn from its steps alone."""

CURRICULA: dict[str, tuple[str, str]] = {
    "accel": ("curricula.accel", "levels"),
    "adr": ("curricula.adr", "points"),
    "adversarial_params": ("curricula.adversarial_params", "points"),
    "alp_gmm": ("curricula.alp_gmm", "points"),
    "covar_gmm": ("curricula.covar_gmm", "points"),
    "dr": ("curricula.dr", "levels"),
    "oracle_teacher": ("curricula.oracle_teacher", "points"),
    "paired": ("curricula.paired", "levels"),
    "plr": ("curricula.plr", "levels"),
    "random_teacher": ("curricula.random_teacher", "points"),
    "reverse_curriculum": ("curricula.reverse_curriculum", "starts"),
    "riac": ("curricula.riac", "points"),
    "self_paced": ("curricula.self_paced", "points"),
    "sfl": ("curricula.sfl", "levels"),
    "snapshot": ("curricula.snapshot", "starts"),
    "traced": ("curricula.traced", "levels"),
}
"""For each NAME of `--curriculum NAME` its module and what it chooses: "levels" that a function draws or a designer
builds, "points" of a box of parameters, or "starts", states in which episodes begin."""
