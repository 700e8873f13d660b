"""Writes `disco.npz`: what the code of disco_rl says to random trajectories, for a small rule and for Disco103.

    pip install jax==0.10.2 dm-haiku rlax distrax optax immutabledict ml_collections jmp
    git clone https://github.com/google-deepmind/disco_rl            # commit 9059a29, of 2025-12
    PYTHONPATH=disco_rl python tests/golden/make_disco.py

Two updates after each other, T = 5, B = 3, A = 4, float64: targets, the rule's memory, losses a step and their
gradients by what the agent says. `inputs` draws what goes in. Of the small rule the weights are stored, too; of
Disco103, whose weights are not ours to ship, the first eight numbers of each row of what comes out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
T, B, A = 5, 3, 4
SMALL = dict(predictions=7, features=6, memory=5)
SMALL_BINS, SMALL_MAX = 11, 4.0


def inputs(seed: int, predictions: int, bins: int) -> dict[str, np.ndarray]:
    """Of two updates: what agent and target network say of T + 1 states, actions, behaviour, rewards and ends."""
    rng = np.random.default_rng(seed)
    sizes = {"logits": (A,), "y": (predictions,), "z": (A, predictions), "aux_pi": (A, A), "q": (A, bins)}
    made = {}
    for update in range(2):
        for who in ("now", "old"):
            for name, size in sizes.items():
                made[f"{update}/{who}/{name}"] = rng.normal(size=(T + 1, B, *size))
        made[f"{update}/behaviour"] = rng.normal(size=(T + 1, B, A))
        made[f"{update}/action"] = rng.integers(0, A, (T + 1, B)).astype(np.int32)
        made[f"{update}/reward"] = rng.normal(size=(T, B))
        made[f"{update}/done"] = rng.random((T, B)) < 0.25
    return made


def reference(weights: dict, made: dict, net: dict, bins: int, max_value: float) -> dict[str, np.ndarray]:
    import jax
    import jax.numpy as jnp
    from disco_rl import agent, types
    from disco_rl.update_rules import disco

    settings = agent.get_settings_disco()
    settings.update_rule.net.update(net)
    rule = disco.DiscoUpdateRule(
        net=settings.update_rule.net, value_discount=0.997, num_bins=bins, max_abs_value=max_value
    )
    hyper = settings.hyper_params.to_dict()
    params: dict = {}
    for name, x in weights.items():
        module, which = name.rsplit("/", 1)
        params.setdefault(module, {})[which] = jnp.asarray(x)
    meta_state = rule.init_meta_state(jax.random.PRNGKey(0), {})
    meta_state = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), meta_state)
    found = {}
    for update in range(2):
        said = {
            who: {name: jnp.asarray(made[f"{update}/{who}/{name}"]) for name in ("logits", "y", "z", "aux_pi", "q")}
            for who in ("now", "old")
        }

        def rollout(agent_out, update=update):
            return types.UpdateRuleInputs(
                observations=jnp.zeros((T + 1, B)),
                actions=jnp.asarray(made[f"{update}/action"]),
                rewards=jnp.asarray(made[f"{update}/reward"]),
                is_terminal=jnp.asarray(made[f"{update}/done"]),
                behaviour_agent_out={"logits": jnp.asarray(made[f"{update}/behaviour"])},
                agent_out=agent_out,
            )

        meta_state["target_params"] = said["old"]
        out, meta_state = rule.unroll_meta_net(
            params,
            said["now"],
            {},
            meta_state,
            rollout(said["now"]),
            hyper,
            lambda target, state, observations, reset: (target, None),
            jax.random.PRNGKey(0),
            None,
        )

        def losses(agent_out, out=out, rollout=rollout):
            each = rule.agent_loss(rollout(agent_out), out, hyper, backprop=False)[0]
            return each + rule.agent_loss_no_meta(rollout(agent_out), out, hyper)[0]

        found |= {f"{update}/{ours}": out[theirs] for ours, theirs in (("pi", "pi"), ("y_hat", "y"), ("z_hat", "z"))}
        found |= {f"{update}/q_target": out["q_target"], f"{update}/normalized": out["normalized_adv"]}
        state = next(iter(jax.tree.leaves(meta_state["rnn_state"], is_leaf=lambda x: hasattr(x, "hidden"))))
        found |= {f"{update}/hidden": state.hidden, f"{update}/cell": state.cell}
        found |= {f"{update}/loss": losses(said["now"])}
        grads = jax.grad(lambda x: losses(x).mean())(said["now"])
        found |= {f"{update}/grad/{name}": x for name, x in grads.items()}
    return {name: np.asarray(x) for name, x in found.items()}


def main() -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    import disco_rl

    from jaxrl.algos.meta.disco import RuleConfig, shapes

    rng = np.random.default_rng(1)
    weights = {
        name: rng.normal(size=shape) * (0.1 if name.endswith("b") else np.prod(shape[:-1]) ** -0.5)
        for name, shape in shapes(RuleConfig(**SMALL)).items()
    }
    made = inputs(2, SMALL["predictions"], SMALL_BINS)
    net = {"prediction_size": 7, "hidden_size": 6}
    net["meta_rnn_kwargs"] = {"hidden_size": 5}
    small = reference(weights, made, net, SMALL_BINS, SMALL_MAX)
    stored = {f"small/weights/{k}": x for k, x in weights.items()} | {f"small/{k}": x for k, x in small.items()}
    path = Path(disco_rl.__file__).parent / "update_rules/weights/disco_103.npz"
    with np.load(path) as file:
        published = {name: file[name].astype(np.float64) for name in file.files}
    full = reference(published, inputs(3, 600, 601), {}, 601, 300.0)
    stored |= {f"disco103/{name}": x[..., :8] for name, x in full.items()}
    np.savez_compressed(HERE / "disco.npz", **stored)
    print(sum(x.nbytes for x in stored.values()) / 1e3, "kB")


if __name__ == "__main__":
    main()
