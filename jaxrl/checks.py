"""What `validate` says about unphysical parameters, in one wording."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxrl.environment import Environment


def require_positive(env: Environment, params: Any, *names: str) -> None:
    """Raise ValueError unless every named parameter is finite and above zero."""
    for name in names:
        value = np.asarray(getattr(params, name))
        if not np.all(np.isfinite(value) & (value > 0)):
            raise ValueError(f"{env.id}: {name}={value} must be finite and positive.")


def require_non_negative(env: Environment, params: Any, *names: str) -> None:
    """Raise ValueError unless every named parameter is finite and at least zero."""
    for name in names:
        value = np.asarray(getattr(params, name))
        if not np.all(np.isfinite(value) & (value >= 0)):
            raise ValueError(f"{env.id}: {name}={value} must be finite and not negative.")


def require_order(env: Environment, params: Any, low: str, high: str) -> None:
    """Raise ValueError unless the parameter `low` is below the parameter `high`."""
    if not np.all(np.asarray(getattr(params, low)) < np.asarray(getattr(params, high))):
        raise ValueError(f"{env.id}: {low}={getattr(params, low)} must be below {high}={getattr(params, high)}.")
