"""Units of signals and parameters, by their names."""

NAMES = {
    "rad/s": "omega mu",
    "N m": "torque a",
    "A": "i",
    "V": "u",
    "V s": "psi",
    "rad": "position epsilon psi_angle twist travel phase",
    "s": "tau spacing interlocking",
    "ohm": "r resistance",
    "H": "l",
    "kg m²": "j",
    "N m s": "b damping",
    "N m s²": "c",
    "N m/rad": "stiffness",
    "F": "capacitance",
    "C": "capacity",
    "Hz": "frequency",
    "1/s": "theta",
    "rad/s^1.5": "sigma",
}
UNITS = {name: unit for unit, names in NAMES.items() for name in names.split()}
"""By the whole name of a signal or a parameter, or by what is before its first underscore."""


def unit(name: str) -> str:
    """Of a signal, its reference or a parameter; nothing where it has none."""
    name = name.rstrip("*")
    return UNITS.get(name, UNITS.get(name.split("_")[0], ""))
