"""Every static integer of an environment has a range: outside it `make` ends in one sentence, at its ends it works.

What is too large is refused by the range, before an array of it exists; the largest allowed sizes are looked at by
their shapes.
"""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl import registry
from jaxrl.environment import Environment, ranges_of, require_product

MOST_BYTES = 500_000_000
"""Of the params and of a state and observation, at the largest size of one setting."""


def classes():
    """`(id, class)` of every environment that is registered, an id for each class."""
    table = registry.environments()
    for id in registry.first_of_each_class().values():
        cls = registry._load(table[id].target) if isinstance(table[id].target, str) else table[id].target
        yield id, cls


def integers(cls):
    """The names of the fields of a class that are integers, or integers or None."""
    return [f.name for f in dataclasses.fields(cls) if f.init and str(f.type).split(" | ")[0] == "int"]


@functools.cache
def settings():
    """`(id, name, least, most)` of every integer setting."""
    return [(id, name, *ranges_of(cls).get(name, (None, None))) for id, cls in classes() for name in integers(cls)]


def test_every_integer_setting_has_a_range():
    assert len(settings()) > 250
    without = [f"{id}: {name}" for id, name, least, _ in settings() if least is None]
    assert not without, f"say their least and most in `static_ranges`: {without}"


def test_what_is_outside_its_range_is_refused_in_one_sentence():
    wrong = []
    for id, name, least, most in settings():
        for value in (least - 1, most + 1, -(10**9), 10**9, 2**31, 10**30):
            try:
                jaxrl.make(id, **{name: value})
            except ValueError as error:
                said = str(error)
                if not (f"{name}={value!r}" in said and "must be" in said and "\n" not in said and len(said) < 200):
                    wrong.append(f"{id} {name}={value!r}: {said}")
            except Exception as error:
                wrong.append(f"{id} {name}={value!r}: {type(error).__name__}")
            else:
                wrong.append(f"{id} {name}={value!r}: accepted")
    assert not wrong, "\n".join(wrong)


def works_or_says(id, name, value):
    """None, or what is wrong: `make` refuses the value without naming the setting, or its arrays are too large."""
    try:
        env, params = jaxrl.make(id, **{name: value})
    except ValueError as error:  # it does not fit the other settings
        said = str(error)
        return None if name in said and str(value) in said and "\n" not in said else f"{name}={value}: {said}"

    def episode(key, params):
        obs, state = env.reset(key, params)
        space = env.action_space(params)
        many = (env.num_agents,) if env.num_agents > 1 else ()
        action = jax.vmap(space.sample)(jax.random.split(key, many)) if many else space.sample(key)
        return obs, state, env.step(key, state, action, params)

    seen = jax.eval_shape(episode, jax.random.key(0), params)
    leaves = [x for x in jax.tree.leaves((params, seen)) if not jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)]
    size = sum(x.size * np.dtype(x.dtype).itemsize for x in leaves)
    return None if size < MOST_BYTES else f"{name}={value}: {size / 1e9:.1f} GB"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "id",
    [
        id if id in ("Catch-bsuite", "Chain-v0") else pytest.param(id, marks=[pytest.mark.slow, pytest.mark.light])
        for id in registry.first_of_each_class().values()
    ],
)
def test_the_ends_of_a_range_work_or_are_refused_with_a_reason(id):
    said = [works_or_says(i, name, value) for i, name, *ends in settings() if i == id for value in ends]
    assert not any(said), f"{id}: " + "; ".join(filter(None, said))


def test_a_subclass_keeps_the_ranges_of_its_parents_and_None_is_a_default():
    @dataclasses.dataclass(frozen=True)
    class Parent(Environment):
        size: int = 3
        parts: int | None = None
        static_ranges = {"size": (1, 5), "parts": (0, 2)}

    @dataclasses.dataclass(frozen=True)
    class Child(Parent):
        size: int = 4
        static_ranges = {"parts": (1, 2)}

    assert ranges_of(Child) == {"size": (1, 5), "parts": (1, 2)}
    assert Child(5, 2).size == Child(np.int64(5)).size == 5
    with pytest.raises(ValueError, match=r"^Child: size=6 must be from 1 to 5\.$"):
        Child(6)
    with pytest.raises(ValueError, match=r"^mine: parts=0 must be from 1 to 2\.$"):
        Child(parts=0, id="mine")
    with pytest.raises(ValueError, match=r"^Parent: size='4' must be an integer from 1 to 5\.$"):
        Parent("4")
    with pytest.raises(ValueError, match=r"^Child: size=5, parts=2: their product 10 must be at most 9\.$"):
        require_product(Child(5, 2), 9, "size", "parts")
