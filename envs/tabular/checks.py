"""What `validate` says about unusable parameters of tabular environments, in one wording."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxrl.environment import Environment


def require_probability(env: Environment, params: Any, *names: str) -> None:
    """Raise ValueError unless every number of the named parameters is from 0 to 1."""
    for name in names:
        value = np.asarray(getattr(params, name))
        if not np.all((value >= 0) & (value <= 1)):
            raise ValueError(f"{env.id}: {name}={value} must be from 0 to 1.")


def require_shape(env: Environment, params: Any, name: str, *shape: int) -> None:
    """Raise ValueError unless the named parameter has this shape; batch axes may come first."""
    found = np.shape(getattr(params, name))
    if found[len(found) - len(shape) :] != shape:
        raise ValueError(f"{env.id}: {name} has the shape {found}; its last axes must be {shape}.")


def require_index(env: Environment, params: Any, name: str, size: int) -> None:
    """Raise ValueError unless every number of the named parameter is in [0, size)."""
    value = np.asarray(getattr(params, name))
    if not np.all((value >= 0) & (value < size)):
        raise ValueError(f"{env.id}: {name}={value} must be from 0 to {size - 1}.")
