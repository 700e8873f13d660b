"""What of a MuJoCo model the engines here read; everything else must be as MuJoCo leaves it where a file says nothing.

MuJoCo gains features with every version, and a model that uses one which an engine does not know would run as another
model. So nothing is refused by a list of what is known to be missing: `refuse_unread` goes over all fields of `MjModel`
and `MjOption` and compares those that nobody reads with a model which the installed MuJoCo compiled from a file that
says nothing, element by element.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

REFERENCE = """<mujoco><worldbody><geom name="g" size="1"/><site name="s"/>
<body name="a"><joint name="j"/><geom name="h" size="1"/></body><body name="b"><joint name="k"/><geom size="1"/></body>
</worldbody><tendon><fixed name="t"><joint joint="j" coef="1"/></fixed></tendon>
<equality><joint joint1="j" joint2="k"/></equality><contact><pair geom1="g" geom2="h"/></contact>
<actuator><motor joint="j"/></actuator><sensor><jointpos joint="j"/></sensor></mujoco>"""
"""A file with an element of each kind that has defaults, and no attribute beyond what MuJoCo asks for."""

KINDS = {
    "actuator": "actuator", "body": "body", "dof": "joint", "eq": "equality", "flex": "flex", "geom": "geom",
    "jnt": "joint", "pair": "pair", "plugin": "plugin", "sensor": "sensor", "site": "site", "tendon": "tendon",
}  # fmt: skip
"""The element that a field belongs to, by the beginning of the field's name."""

DERIVED = {
    "addresses, counts and orders that MuJoCo's compiler makes of what is read or refused": """
        M_colind M_rowadr M_rownnz B_colind B_rowadr B_rownnz D_colind D_diag D_rowadr D_rownnz mapD2M mapM2D mapM2M
        names names_map paths signature actuator_actadr actuator_actnum actuator_ctrladr actuator_outadr
        body_bvhadr body_bvhnum body_dofadr body_dofnum body_geomadr body_geomnum body_jntadr body_jntnum body_rootid
        body_sameframe body_simple body_treeid body_weldid dof_Madr dof_bodyid dof_jntid dof_parentid dof_simplenum
        dof_treeid geom_sameframe jnt_actuatorid jnt_bodyid jnt_dofadr jnt_qposadr site_sameframe tree_bodyadr
        tree_bodynum tree_dofadr tree_dofnum tendon_adr tendon_num tendon_actuatorid tendon_treeid tendon_treenum
        jnt_plasticadr tendon_plasticadr ten_J_colind ten_J_rowadr ten_J_rownnz sensor_adr flg_adhesion flg_gravcomp
        flg_surfacevel
        efm0_L efm0_L_colind efm0_L_rowadr efm0_L_rownnz efm0_dofid efmC_perm pair_signature""",
    "made of masses, shapes and coordinates at rest": """
        actuator_acc0 actuator_length0 body_conaffinity body_contype body_margin body_subtreemass dof_M0 dof_length
        geom_aabb geom_rbound stat tendon_length0 tendon_invweight0""",
    "drawn, and without a force": """
        vis geom_castshadow geom_group geom_matid geom_rgba jnt_group site_group site_matid site_rgba site_size
        site_type site_dataid tendon_group tendon_matid tendon_rgba tendon_width""",
    "read by a flag or a group that is refused": """
        actuator_group tree_sleep_policy opt.sleep_tolerance opt.noslip_tolerance opt.o_friction opt.o_margin
        opt.o_solimp opt.o_solref""",
    "what an iteration of MuJoCo's begins or ends with: the least of Gauss's function is the same": """
        opt.ccd_iterations opt.ccd_tolerance opt.iterations opt.jacobian opt.ls_iterations opt.ls_tolerance
        opt.sdf_initpoints opt.sdf_iterations opt.solver opt.tolerance""",
    "what a sensor tells, which MuJoCo does not disturb by it": "sensor_noise opt.magnetic",
}
"""Fields whose values are no feature of a model, by why. Here names are whole: a new field beside them is refused."""

WITHOUT_FORCE = tuple("bvh_ cam_ hfield_ key_ light_ mat_ mesh_ name_ numeric_ oct_ skin_ tex_ text_ tuple_".split())
"""Beginnings of the names of what is drawn, named, stored or a shape of geoms: it moves nothing by itself."""


class Reader(NamedTuple):
    """What an engine reads."""

    engine: str
    fields: frozenset[str]
    idle: frozenset[str]  # beside `DERIVED`: what has no effect while other fields are as the engine demands
    enable: frozenset[str]  # flags that may be set
    disable: frozenset[str]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BODIES = """body_inertia body_invweight0 body_ipos body_iquat body_mass body_parentid body_pos body_quat
    jnt_axis jnt_limited jnt_margin jnt_pos jnt_range jnt_solimp jnt_solref jnt_stiffness jnt_type
    dof_armature dof_damping dof_invweight0 qpos0 qpos_spring
    geom_bodyid geom_conaffinity geom_condim geom_contype geom_friction geom_margin geom_pos geom_priority geom_quat
    geom_size geom_solimp geom_solmix geom_solref geom_type
    actuator_biastype actuator_ctrllimited actuator_ctrlrange actuator_dyntype actuator_forcelimited actuator_gainprm
    actuator_gaintype actuator_gear actuator_trnid actuator_trntype
    opt.cone opt.density opt.disableflags opt.enableflags opt.gravity opt.impratio opt.integrator opt.timestep
    opt.viscosity opt.wind """

QUIET = _names("ENERGY FWDINV INVDISCRETE")
"""Enabling flags that change what MuJoCo tells, and no motion."""

PLANAR = Reader(
    "planar",
    _names(_BODIES),
    # of actuators with an activation, of sliders with a crank, of clamped forces, of friction of joints, of fluids
    _names(
        "actuator_actearly actuator_actlimited actuator_actrange actuator_biasprm actuator_cranklength actuator_dynprm "
        "actuator_forcerange actuator_lengthrange dof_solimp dof_solref geom_dataid geom_fluid jnt_actfrcrange "
        "site_bodyid site_pos site_quat "
        "sensor_cutoff sensor_datatype sensor_delay sensor_dim sensor_history sensor_historyadr sensor_interval "
        "sensor_intprm sensor_needstage sensor_objid sensor_objtype sensor_plugin sensor_refid sensor_reftype "
        "sensor_type"
    ),
    QUIET,
    frozenset(),
)
"""`planar.plan`, which refuses the rest of what it reads with a sentence of its own."""

MJX = Reader(
    "mjx",
    _names(
        _BODIES
        + """actuator_actlimited actuator_actrange actuator_biasprm actuator_dynprm actuator_forcerange
    actuator_ctrlspec actuator_lengthrange body_gravcomp body_mocapid dof_frictionloss dof_solimp dof_solref
    eq_active0 eq_data eq_obj1id eq_obj2id eq_objtype eq_solimp eq_solref eq_type exclude_signature geom_dataid
    jnt_actfrclimited jnt_actfrcrange jnt_actgravcomp pair_dim pair_friction pair_geom1 pair_geom2 pair_margin
    pair_solimp pair_solref pair_solreffriction sensor_cutoff sensor_datatype sensor_dim sensor_intprm
    sensor_needstage sensor_objid sensor_objtype sensor_refid sensor_reftype sensor_type site_bodyid site_pos site_quat
    tendon_actfrclimited tendon_actfrcrange tendon_armature tendon_damping tendon_frictionloss tendon_lengthspring
    tendon_limited tendon_margin tendon_range tendon_solimp_fri tendon_solimp_lim tendon_solref_fri tendon_solref_lim
    tendon_stiffness wrap_objid wrap_prm wrap_type"""
    ),
    _names("actuator_actearly actuator_cranklength"),  # of activations and of cranks, which are refused
    QUIET,
    _names(
        "ACTUATION AUTORESET CLAMPCTRL CONSTRAINT CONTACT DAMPER EQUALITY EULERDAMP FILTERPARENT FRICTIONLOSS GRAVITY "
        "ISLAND LIMIT MIDPHASE NATIVECCD REFSAFE SENSOR SPRING WARMSTART"
    ),
)
"""MJX 3.17, by its source: fields that its implementation in JAX uses, which are fewer than its model holds."""


@functools.cache
def _reference() -> Any:
    import mujoco

    return mujoco.MjModel.from_xml_string(REFERENCE)


def fields(model: Any) -> Iterator[str]:
    """Names of all fields of a model, those of its options behind `opt.`, sizes (`nbody`) left out: they count arrays
    that are fields themselves."""
    for name in dir(model):
        if name.startswith("_") or callable(getattr(model, name)) or name == "opt":
            continue
        if not (name.startswith("n") and isinstance(getattr(model, name), int)):
            yield name
    yield from (f"opt.{x}" for x in dir(model.opt) if not x.startswith("_") and not callable(getattr(model.opt, x)))


def without_effect(name: str, reader: Reader) -> bool:
    """Whether a field may have any value: it is derived, drawn, a user's own, or idle under this reader."""
    return (
        name in reader.idle
        or name.startswith(WITHOUT_FORCE)
        or name.endswith("_user")
        or any(name in text.split() for text in DERIVED.values())
    )


def _get(model: Any, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), model)


def unusual(model: Any, name: str) -> tuple[int | None, Any, Any] | None:
    """Where a field is not at MuJoCo's default: element (None: of the model), value and default (None: it has none)."""
    value, usual = _get(model, name), _get(_reference(), name) if _has(_reference(), name) else None
    if isinstance(value, (bytes, str)):
        return None if value == usual else (None, value, usual)
    there, default = np.asarray(value), None if usual is None else np.asarray(usual)
    if name.split("_")[0] not in (*KINDS, "tree"):  # of the model as a whole
        same = default is not None and there.shape == default.shape and np.array_equal(there, default)
        return None if same or not there.size else (None, value, usual)
    rows = None if default is None or not len(default) else default[-1]
    for i, row in enumerate(there):
        if rows is None or np.shape(row) != rows.shape:
            if np.size(row):
                return i, row, None
        elif not np.array_equal(row, rows, equal_nan=np.issubdtype(rows.dtype, np.floating)):
            return i, row, rows
    return None


def _has(model: Any, name: str) -> bool:
    return hasattr(model.opt, name[4:]) if name.startswith("opt.") else hasattr(model, name)


def _flags(model: Any, reader: Reader) -> Iterator[str]:
    import mujoco

    for field, enum, prefix, allowed in (
        ("enableflags", mujoco.mjtEnableBit, "mjENBL_", reader.enable),
        ("disableflags", mujoco.mjtDisableBit, "mjDSBL_", reader.disable),
    ):
        known = {int(x): name.removeprefix(prefix) for name, x in enum.__members__.items() if name.startswith(prefix)}
        value = int(getattr(model.opt, field))
        for bit in (1 << k for k in range(value.bit_length()) if value >> k & 1):
            if known.get(bit) not in allowed:
                yield f"The model's option {field} has the flag {known.get(bit, bit)}"


def refuse_unread(model: Any, reader: Reader, refused: Callable[[str], Exception], name_of: Any) -> None:
    """Raises `refused(what)`, naming element and field, for a field that is not read and not at MuJoCo's default."""
    for what in _flags(model, reader):
        raise refused(what)
    for name in fields(model):
        if name in reader.fields or without_effect(name, reader):
            continue
        found = unusual(model, name)
        if found is None:
            continue
        i, value, default = found
        kind = name.split("_")[0]
        element = "The model" if i is None or kind not in KINDS else _element(model, kind, i, name_of)
        usual = "" if default is None else f" (MuJoCo's default is {_shown(default)})"
        raise refused(f"{element} has {name}={_shown(value)}{usual}")


def _shown(x: Any) -> str:
    return str(np.asarray(x).tolist()) if np.size(x) <= 12 else f"values of shape {np.shape(x)}"


def _element(model: Any, kind: str, i: int, name_of: Any) -> str:
    i = int(model.dof_jntid[i]) if kind == "dof" else i
    try:
        return name_of(model, KINDS[kind], i)
    except AttributeError:
        return f"{KINDS[kind]} {i}"
