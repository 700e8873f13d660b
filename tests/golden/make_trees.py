"""Golden trees of gradient-boosted reinforcement learning, into trees.npz.

    OMP_NUM_THREADS=1 python tests/golden/make_trees.py

in an environment with gbrl 1.1.9 (MIT; with it comes torch), which the project's own has not.

A hundred minibatches in nine groups of one shape, kind of feature, kind of candidates and score each, and one oblivious
tree on each. Stored of a group are the rows `x` (n, B, F), of categorical features the number of the value, the
gradients (n, B, D), and gbrl's answers: `feature` and `threshold` (n, L) of the levels, a categorical one's being its
value, `is_numeric`, the `depth` at which the tree stopped, and `leaves` (n, 2^L, D), mean gradients. `sequence_*` is an
ensemble of twenty trees with a learning rate for the first two outputs and another for the last, and its predictions.
"""

from pathlib import Path

import numpy as np
from gbrl.models.actor_critic import ActorCritic

# name: batches, rows, numeric features, categorical features, outputs, score, candidates, how many, depth
GROUPS = {
    "cosine_quantile": (20, 64, 4, 0, 3, "cosine", "Quantile", 250, 4),
    "l2_quantile": (15, 64, 4, 0, 3, "L2", "Quantile", 250, 4),
    "cosine_uniform": (15, 64, 4, 0, 3, "cosine", "Uniform", 250, 4),
    "l2_uniform": (10, 128, 3, 0, 2, "L2", "Uniform", 16, 4),
    "few_quantiles": (10, 100, 4, 0, 3, "cosine", "Quantile", 12, 4),
    "cosine_categorical": (10, 96, 0, 5, 4, "cosine", "Quantile", 250, 4),
    "l2_categorical": (5, 96, 0, 5, 4, "L2", "Quantile", 250, 4),
    "mixed": (10, 96, 3, 3, 3, "cosine", "Quantile", 20, 4),
    "stops_early": (5, 32, 2, 0, 2, "cosine", "Quantile", 8, 6),
}
VALUES = 4
POLICY_LR, VALUE_LR = 0.17, 0.01


def model(features: int, outputs: int, score: str, kind: str, num: int, depth: int) -> ActorCritic:
    return ActorCritic(
        tree_struct=dict(max_depth=depth, grow_policy="oblivious", n_bins=num, min_data_in_leaf=0, par_th=10**9),
        input_dim=features,
        output_dim=outputs,
        policy_optimizer=dict(policy_algo="SGD", policy_lr=POLICY_LR, start_idx=0, stop_idx=outputs - 1),
        value_optimizer=dict(value_algo="SGD", value_lr=VALUE_LR, start_idx=outputs - 1, stop_idx=outputs),
        shared_tree_struct=True,
        params=dict(control_variates=False, split_score_func=score, generator_type=kind),
        device="cpu",
    )


def batch(rng: np.random.Generator, rows: int, numeric: int, categorical: int, outputs: int, coarse: bool):
    """Rows whose gradients depend on their features, on numeric ones linearly and on steps of them."""
    x = rng.normal(size=(rows, numeric)) * rng.lognormal(size=numeric)
    x = (x > 0).astype(float) if coarse else x
    codes = rng.integers(0, VALUES, (rows, categorical))
    table = rng.normal(size=(categorical, VALUES, outputs))
    grads = x @ rng.normal(size=(numeric, outputs)) * 0.3 + (x > 0.2) @ rng.normal(size=(numeric, outputs))
    grads = grads + sum((table[i, codes[:, i]] for i in range(categorical)), np.zeros((rows, outputs)))
    grads = (grads + rng.normal(size=(rows, outputs))) * rng.lognormal(size=outputs)
    return x.astype(np.float32), codes, grads.astype(np.float32)


def given(x: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Rows as gbrl takes them: floats, or objects with strings among them."""
    if not codes.shape[1]:
        return x
    names = np.vectorize("c{}".format)(codes)
    return names.astype("<U8") if not x.shape[1] else np.concatenate([x.astype(object), names.astype(object)], 1)


def main() -> None:
    rng = np.random.default_rng(0)
    stored: dict[str, np.ndarray] = {}
    for name, (n, rows, numeric, categorical, outputs, score, kind, num, depth) in GROUPS.items():
        kept = {k: [] for k in ("x", "grads", "feature", "threshold", "is_numeric", "depth", "leaves")}
        for _ in range(n):
            x, codes, grads = batch(rng, rows, numeric, categorical, outputs, name == "stops_early")
            gbrl = model(numeric + categorical, outputs, score, kind, num, depth)
            gbrl.step(given(x, codes), grads[:, :-1].copy(), grads[:, -1].copy())
            data = gbrl.learner._cpp_model.get_ensemble_data()
            stopped = int(data["depths"][0])
            value = np.asarray(data["feature_values"][0], np.float32)
            is_numeric = np.asarray(data["is_numerics"][0], bool)
            for level in range(stopped):
                if not is_numeric[level]:
                    value[level] = int(data["categorical_values"][0][level].decode().lstrip("c"))
            leaves = np.zeros((2**depth, outputs), np.float32)
            leaves[: 2**stopped] = np.asarray(data["values"]).reshape(-1, outputs)[: 2**stopped]
            row = np.concatenate([x, codes.astype(np.float32)], 1), grads, np.asarray(data["feature_indices"][0])
            for k, v in zip(kept, (*row, value, is_numeric, stopped, leaves), strict=True):
                kept[k].append(v)
        stored |= {f"{name}_{k}": np.stack(v) for k, v in kept.items()}

    gbrl, steps = model(4, 3, "cosine", "Quantile", 250, 4), []
    for _ in range(20):
        x, codes, grads = batch(rng, 64, 4, 0, 3, False)
        gbrl.step(x, grads[:, :-1].copy(), grads[:, -1].copy())
        steps.append((x, grads))
    rows = rng.normal(size=(200, 4)).astype(np.float32) * 2
    policy, value = gbrl(rows, requires_grad=False, tensor=False)
    stored |= {"sequence_x": np.stack([x for x, _ in steps]), "sequence_grads": np.stack([g for _, g in steps])}
    stored |= {"sequence_rows": rows, "sequence_outputs": np.concatenate([policy, value[:, None]], 1)}
    stored["learning_rates"] = np.array([POLICY_LR, VALUE_LR], np.float32)
    np.savez_compressed(Path(__file__).with_name("trees.npz"), **stored)


if __name__ == "__main__":
    main()
