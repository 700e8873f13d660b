"""The tables behind `jaxrl.registry`: what class and static settings an id stands for, and which algorithms exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """An environment class as "module:Class" (or the class itself) and the static settings an id stands for."""

    target: str | Callable[..., Any]
    settings: dict[str, Any]


ENVIRONMENTS: dict[str, Entry] = {
    "Acrobot-v1": Entry("jaxrl.envs.classic.acrobot:Acrobot", {}),
    "AdversarialBandit-v0": Entry("jaxrl.envs.bandits.adversarial:AdversarialBandit", {}),
    "Asterix-MinAtar": Entry("jaxrl.envs.grid.minatar.asterix:Asterix", {}),
    "BabyAI-ActionObjDoor-v0": Entry("jaxrl.envs.grid.babyai.other:ActionObjDoor", {}),
    "BabyAI-BlockedUnlockPickup-v0": Entry("jaxrl.envs.grid.babyai.unlock:BlockedUnlockPickup", {}),
    "BabyAI-BossLevel-v0": Entry("jaxrl.envs.grid.babyai.synth:LevelGen", {}),
    "BabyAI-BossLevelNoUnlock-v0": Entry(
        "jaxrl.envs.grid.babyai.synth:LevelGen", {"locked_room_prob": 0.0, "implicit_unlock": False}
    ),
    "BabyAI-FindObjS5-v0": Entry("jaxrl.envs.grid.babyai.pickup:FindObj", {"room_size": 5}),
    "BabyAI-FindObjS6-v0": Entry("jaxrl.envs.grid.babyai.pickup:FindObj", {"room_size": 6}),
    "BabyAI-FindObjS7-v0": Entry("jaxrl.envs.grid.babyai.pickup:FindObj", {"room_size": 7}),
    "BabyAI-GoTo-v0": Entry("jaxrl.envs.grid.babyai.goto:GoTo", {}),
    "BabyAI-GoToDoor-v0": Entry("jaxrl.envs.grid.babyai.goto:GoToDoor", {}),
    "BabyAI-GoToImpUnlock-v0": Entry("jaxrl.envs.grid.babyai.goto:GoToImpUnlock", {}),
    "BabyAI-GoToLocal-v0": Entry("jaxrl.envs.grid.babyai.goto:GoTo", {"num_rows": 1, "num_cols": 1, "num_dists": 8}),
    "BabyAI-GoToLocalS5N2-v0": Entry(
        "jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 5, "num_rows": 1, "num_cols": 1, "num_dists": 2}
    ),
    "BabyAI-GoToLocalS6N2-v0": Entry(
        "jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 6, "num_rows": 1, "num_cols": 1, "num_dists": 2}
    ),
    "BabyAI-GoToLocalS6N3-v0": Entry(
        "jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 6, "num_rows": 1, "num_cols": 1, "num_dists": 3}
    ),
    "BabyAI-GoToLocalS6N4-v0": Entry(
        "jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 6, "num_rows": 1, "num_cols": 1, "num_dists": 4}
    ),
    "BabyAI-GoToLocalS7N4-v0": Entry(
        "jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 7, "num_rows": 1, "num_cols": 1, "num_dists": 4}
    ),
    "BabyAI-GoToLocalS7N5-v0": Entry(
        "jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 7, "num_rows": 1, "num_cols": 1, "num_dists": 5}
    ),
    "BabyAI-GoToLocalS8N2-v0": Entry(
        "jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 8, "num_rows": 1, "num_cols": 1, "num_dists": 2}
    ),
    "BabyAI-GoToLocalS8N3-v0": Entry(
        "jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 8, "num_rows": 1, "num_cols": 1, "num_dists": 3}
    ),
    "BabyAI-GoToLocalS8N4-v0": Entry(
        "jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 8, "num_rows": 1, "num_cols": 1, "num_dists": 4}
    ),
    "BabyAI-GoToLocalS8N5-v0": Entry(
        "jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 8, "num_rows": 1, "num_cols": 1, "num_dists": 5}
    ),
    "BabyAI-GoToLocalS8N6-v0": Entry(
        "jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 8, "num_rows": 1, "num_cols": 1, "num_dists": 6}
    ),
    "BabyAI-GoToLocalS8N7-v0": Entry(
        "jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 8, "num_rows": 1, "num_cols": 1, "num_dists": 7}
    ),
    "BabyAI-GoToObj-v0": Entry("jaxrl.envs.grid.babyai.goto:GoTo", {"num_rows": 1, "num_cols": 1, "num_dists": 1}),
    "BabyAI-GoToObjDoor-v0": Entry("jaxrl.envs.grid.babyai.goto:GoToObjDoor", {}),
    "BabyAI-GoToObjMaze-v0": Entry("jaxrl.envs.grid.babyai.goto:GoTo", {"num_dists": 1}),
    "BabyAI-GoToObjMazeOpen-v0": Entry("jaxrl.envs.grid.babyai.goto:GoTo", {"num_dists": 1, "doors_open": True}),
    "BabyAI-GoToObjMazeS4-v0": Entry("jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 4, "num_dists": 1}),
    "BabyAI-GoToObjMazeS4R2-v0": Entry(
        "jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 4, "num_rows": 2, "num_cols": 2, "num_dists": 1}
    ),
    "BabyAI-GoToObjMazeS5-v0": Entry("jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 5, "num_dists": 1}),
    "BabyAI-GoToObjMazeS6-v0": Entry("jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 6, "num_dists": 1}),
    "BabyAI-GoToObjMazeS7-v0": Entry("jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 7, "num_dists": 1}),
    "BabyAI-GoToObjS4-v0": Entry(
        "jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 4, "num_rows": 1, "num_cols": 1, "num_dists": 1}
    ),
    "BabyAI-GoToObjS6-v1": Entry(
        "jaxrl.envs.grid.babyai.goto:GoTo", {"room_size": 6, "num_rows": 1, "num_cols": 1, "num_dists": 1}
    ),
    "BabyAI-GoToOpen-v0": Entry("jaxrl.envs.grid.babyai.goto:GoTo", {"doors_open": True}),
    "BabyAI-GoToRedBall-v0": Entry("jaxrl.envs.grid.babyai.goto:GoToRedBall", {}),
    "BabyAI-GoToRedBallGrey-v0": Entry("jaxrl.envs.grid.babyai.goto:GoToRedBall", {"grey": True}),
    "BabyAI-GoToRedBallNoDists-v0": Entry("jaxrl.envs.grid.babyai.goto:GoToRedBall", {"num_dists": 0}),
    "BabyAI-GoToRedBlueBall-v0": Entry("jaxrl.envs.grid.babyai.goto:GoToRedBlueBall", {}),
    "BabyAI-GoToSeq-v0": Entry(
        "jaxrl.envs.grid.babyai.synth:LevelGen",
        {"locked_room_prob": 0.0, "locations": False, "unblocking": False, "action_kinds": ("goto",)},
    ),
    "BabyAI-GoToSeqS5R2-v0": Entry(
        "jaxrl.envs.grid.babyai.synth:LevelGen",
        {
            "room_size": 5,
            "num_rows": 2,
            "num_cols": 2,
            "num_dists": 4,
            "locked_room_prob": 0.0,
            "locations": False,
            "unblocking": False,
            "action_kinds": ("goto",),
        },
    ),
    "BabyAI-KeyCorridor-v0": Entry("jaxrl.envs.grid.babyai.pickup:KeyCorridor", {}),
    "BabyAI-KeyCorridorS3R1-v0": Entry("jaxrl.envs.grid.babyai.pickup:KeyCorridor", {"room_size": 3, "num_rows": 1}),
    "BabyAI-KeyCorridorS3R2-v0": Entry("jaxrl.envs.grid.babyai.pickup:KeyCorridor", {"room_size": 3, "num_rows": 2}),
    "BabyAI-KeyCorridorS3R3-v0": Entry("jaxrl.envs.grid.babyai.pickup:KeyCorridor", {"room_size": 3, "num_rows": 3}),
    "BabyAI-KeyCorridorS4R3-v0": Entry("jaxrl.envs.grid.babyai.pickup:KeyCorridor", {"room_size": 4, "num_rows": 3}),
    "BabyAI-KeyCorridorS5R3-v0": Entry("jaxrl.envs.grid.babyai.pickup:KeyCorridor", {"room_size": 5, "num_rows": 3}),
    "BabyAI-KeyCorridorS6R3-v0": Entry("jaxrl.envs.grid.babyai.pickup:KeyCorridor", {"room_size": 6, "num_rows": 3}),
    "BabyAI-KeyInBox-v0": Entry("jaxrl.envs.grid.babyai.unlock:KeyInBox", {}),
    "BabyAI-MiniBossLevel-v0": Entry(
        "jaxrl.envs.grid.babyai.synth:LevelGen",
        {"room_size": 5, "num_rows": 2, "num_cols": 2, "num_dists": 7, "locked_room_prob": 0.25},
    ),
    "BabyAI-MoveTwoAcrossS5N2-v0": Entry(
        "jaxrl.envs.grid.babyai.put_next:MoveTwoAcross", {"room_size": 5, "objs_per_room": 2}
    ),
    "BabyAI-MoveTwoAcrossS8N9-v0": Entry(
        "jaxrl.envs.grid.babyai.put_next:MoveTwoAcross", {"room_size": 8, "objs_per_room": 9}
    ),
    "BabyAI-OneRoomS12-v0": Entry("jaxrl.envs.grid.babyai.pickup:OneRoom", {"room_size": 12}),
    "BabyAI-OneRoomS16-v0": Entry("jaxrl.envs.grid.babyai.pickup:OneRoom", {"room_size": 16}),
    "BabyAI-OneRoomS20-v0": Entry("jaxrl.envs.grid.babyai.pickup:OneRoom", {"room_size": 20}),
    "BabyAI-OneRoomS8-v0": Entry("jaxrl.envs.grid.babyai.pickup:OneRoom", {"room_size": 8}),
    "BabyAI-Open-v0": Entry("jaxrl.envs.grid.babyai.open:Open", {}),
    "BabyAI-OpenDoor-v0": Entry("jaxrl.envs.grid.babyai.open:OpenDoor", {}),
    "BabyAI-OpenDoorColor-v0": Entry("jaxrl.envs.grid.babyai.open:OpenDoor", {"select_by": "color"}),
    "BabyAI-OpenDoorDebug-v0": Entry("jaxrl.envs.grid.babyai.open:OpenDoor", {"debug": True}),
    "BabyAI-OpenDoorLoc-v0": Entry("jaxrl.envs.grid.babyai.open:OpenDoor", {"select_by": "loc"}),
    "BabyAI-OpenDoorsOrderN2-v0": Entry("jaxrl.envs.grid.babyai.open:OpenDoorsOrder", {"num_doors": 2}),
    "BabyAI-OpenDoorsOrderN2Debug-v0": Entry(
        "jaxrl.envs.grid.babyai.open:OpenDoorsOrder", {"num_doors": 2, "debug": True}
    ),
    "BabyAI-OpenDoorsOrderN4-v0": Entry("jaxrl.envs.grid.babyai.open:OpenDoorsOrder", {"num_doors": 4}),
    "BabyAI-OpenDoorsOrderN4Debug-v0": Entry(
        "jaxrl.envs.grid.babyai.open:OpenDoorsOrder", {"num_doors": 4, "debug": True}
    ),
    "BabyAI-OpenRedBlueDoors-v0": Entry(
        "jaxrl.envs.grid.babyai.open:OpenTwoDoors", {"first_color": "red", "second_color": "blue"}
    ),
    "BabyAI-OpenRedBlueDoorsDebug-v0": Entry(
        "jaxrl.envs.grid.babyai.open:OpenTwoDoors", {"first_color": "red", "second_color": "blue", "debug": True}
    ),
    "BabyAI-OpenRedDoor-v0": Entry("jaxrl.envs.grid.babyai.open:OpenRedDoor", {}),
    "BabyAI-OpenTwoDoors-v0": Entry("jaxrl.envs.grid.babyai.open:OpenTwoDoors", {}),
    "BabyAI-Pickup-v0": Entry("jaxrl.envs.grid.babyai.pickup:Pickup", {}),
    "BabyAI-PickupAbove-v0": Entry("jaxrl.envs.grid.babyai.pickup:PickupAbove", {}),
    "BabyAI-PickupDist-v0": Entry("jaxrl.envs.grid.babyai.pickup:PickupDist", {}),
    "BabyAI-PickupDistDebug-v0": Entry("jaxrl.envs.grid.babyai.pickup:PickupDist", {"debug": True}),
    "BabyAI-PickupLoc-v0": Entry(
        "jaxrl.envs.grid.babyai.synth:LevelGen",
        {
            "num_rows": 1,
            "num_cols": 1,
            "num_dists": 8,
            "locked_room_prob": 0.0,
            "unblocking": False,
            "action_kinds": ("pickup",),
            "instr_kinds": ("action",),
            "clauses": 1,
        },
    ),
    "BabyAI-PutNextLocal-v0": Entry("jaxrl.envs.grid.babyai.put_next:PutNextLocal", {}),
    "BabyAI-PutNextLocalS5N3-v0": Entry(
        "jaxrl.envs.grid.babyai.put_next:PutNextLocal", {"room_size": 5, "num_objs": 3}
    ),
    "BabyAI-PutNextLocalS6N4-v0": Entry(
        "jaxrl.envs.grid.babyai.put_next:PutNextLocal", {"room_size": 6, "num_objs": 4}
    ),
    "BabyAI-PutNextS4N1-v0": Entry("jaxrl.envs.grid.babyai.put_next:PutNext", {"room_size": 4, "objs_per_room": 1}),
    "BabyAI-PutNextS5N1-v0": Entry("jaxrl.envs.grid.babyai.put_next:PutNext", {"room_size": 5, "objs_per_room": 1}),
    "BabyAI-PutNextS5N2-v0": Entry("jaxrl.envs.grid.babyai.put_next:PutNext", {"room_size": 5, "objs_per_room": 2}),
    "BabyAI-PutNextS5N2Carrying-v0": Entry(
        "jaxrl.envs.grid.babyai.put_next:PutNext", {"room_size": 5, "objs_per_room": 2, "start_carrying": True}
    ),
    "BabyAI-PutNextS6N3-v0": Entry("jaxrl.envs.grid.babyai.put_next:PutNext", {"room_size": 6, "objs_per_room": 3}),
    "BabyAI-PutNextS6N3Carrying-v0": Entry(
        "jaxrl.envs.grid.babyai.put_next:PutNext", {"room_size": 6, "objs_per_room": 3, "start_carrying": True}
    ),
    "BabyAI-PutNextS7N4-v0": Entry("jaxrl.envs.grid.babyai.put_next:PutNext", {"room_size": 7, "objs_per_room": 4}),
    "BabyAI-PutNextS7N4Carrying-v0": Entry(
        "jaxrl.envs.grid.babyai.put_next:PutNext", {"room_size": 7, "objs_per_room": 4, "start_carrying": True}
    ),
    "BabyAI-Synth-v0": Entry(
        "jaxrl.envs.grid.babyai.synth:LevelGen",
        {"locations": False, "implicit_unlock": False, "instr_kinds": ("action",), "clauses": 1},
    ),
    "BabyAI-SynthLoc-v0": Entry(
        "jaxrl.envs.grid.babyai.synth:LevelGen", {"implicit_unlock": False, "instr_kinds": ("action",), "clauses": 1}
    ),
    "BabyAI-SynthS5R2-v0": Entry(
        "jaxrl.envs.grid.babyai.synth:LevelGen",
        {
            "room_size": 5,
            "num_rows": 2,
            "locations": False,
            "implicit_unlock": False,
            "instr_kinds": ("action",),
            "clauses": 1,
        },
    ),
    "BabyAI-SynthSeq-v0": Entry("jaxrl.envs.grid.babyai.synth:LevelGen", {"implicit_unlock": False}),
    "BabyAI-UnblockPickup-v0": Entry("jaxrl.envs.grid.babyai.pickup:UnblockPickup", {}),
    "BabyAI-Unlock-v0": Entry("jaxrl.envs.grid.babyai.unlock:Unlock", {}),
    "BabyAI-UnlockLocal-v0": Entry("jaxrl.envs.grid.babyai.unlock:UnlockLocal", {}),
    "BabyAI-UnlockLocalDist-v0": Entry("jaxrl.envs.grid.babyai.unlock:UnlockLocal", {"distractors": True}),
    "BabyAI-UnlockPickup-v0": Entry("jaxrl.envs.grid.babyai.unlock:UnlockPickup", {}),
    "BabyAI-UnlockPickupDist-v0": Entry("jaxrl.envs.grid.babyai.unlock:UnlockPickup", {"distractors": True}),
    "BabyAI-UnlockToUnlock-v0": Entry("jaxrl.envs.grid.babyai.unlock:UnlockToUnlock", {}),
    "Bandit-bsuite": Entry("jaxrl.envs.bsuite.bandit:Bandit", {}),
    "BernoulliBandit-v0": Entry("jaxrl.envs.bandits.stochastic:BernoulliBandit", {}),
    "BestArmIdentification-v0": Entry("jaxrl.envs.bandits.best_arm:BestArmIdentification", {}),
    "BetaBandit-v0": Entry("jaxrl.envs.bandits.stochastic:BetaBandit", {}),
    "Breakout-MinAtar": Entry("jaxrl.envs.grid.minatar.breakout:Breakout", {}),
    "ButtonGrid-v0": Entry("jaxrl.envs.tabular.button_grid:ButtonGrid", {}),
    "CartPole-bsuite": Entry("jaxrl.envs.bsuite.cartpole:CartPole", {}),
    "CartPole-v1": Entry("jaxrl.envs.classic.cartpole:CartPole", {}),
    "CartPoleContinuous-v0": Entry("jaxrl.envs.classic.cartpole_continuous:CartPoleContinuous", {}),
    "CartPoleSwingup-bsuite": Entry("jaxrl.envs.bsuite.cartpole_swingup:CartPoleSwingup", {}),
    "CartPoleSwingUp-v0": Entry("jaxrl.envs.classic.cartpole_swing_up:CartPoleSwingUp", {}),
    "Catch-bsuite": Entry("jaxrl.envs.bsuite.catch:Catch", {}),
    "Chain-v0": Entry("jaxrl.envs.tabular.chain:Chain", {}),
    "CliffWalking-v1": Entry("jaxrl.envs.tabular.cliff_walking:CliffWalking", {}),
    "CliffWalkingSlippery-v1": Entry("jaxrl.envs.tabular.cliff_walking:CliffWalking", {"slippery": True}),
    "CombinationLock-v0": Entry("jaxrl.envs.tabular.combination_lock:CombinationLock", {}),
    "Cont-CC-DFIM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "DFIM", "task": "CC", "control": "Cont"}),
    "Cont-CC-EESM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "EESM", "task": "CC", "control": "Cont"}),
    "Cont-CC-ExtExDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "ExtExDc", "task": "CC", "control": "Cont"}
    ),
    "Cont-CC-PMSM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "PMSM", "task": "CC", "control": "Cont"}),
    "Cont-CC-PermExDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "PermExDc", "task": "CC", "control": "Cont"}
    ),
    "Cont-CC-SCIM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "SCIM", "task": "CC", "control": "Cont"}),
    "Cont-CC-SIXPMSM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SIXPMSM", "task": "CC", "control": "Cont"}
    ),
    "Cont-CC-SeriesDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SeriesDc", "task": "CC", "control": "Cont"}
    ),
    "Cont-CC-ShuntDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "ShuntDc", "task": "CC", "control": "Cont"}
    ),
    "Cont-CC-SynRM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "SynRM", "task": "CC", "control": "Cont"}),
    "Cont-DTC-PMSM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "PMSM", "task": "DTC", "control": "Cont"}),
    "Cont-DTC-SCIM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "SCIM", "task": "DTC", "control": "Cont"}),
    "Cont-FW-PMSM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "PMSM", "task": "FW", "control": "Cont"}),
    "Cont-PC-PMSM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "PMSM", "task": "PC", "control": "Cont"}),
    "Cont-PC-PermExDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "PermExDc", "task": "PC", "control": "Cont"}
    ),
    "Cont-SC-DFIM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "DFIM", "task": "SC", "control": "Cont"}),
    "Cont-SC-EESM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "EESM", "task": "SC", "control": "Cont"}),
    "Cont-SC-ExtExDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "ExtExDc", "task": "SC", "control": "Cont"}
    ),
    "Cont-SC-PMSM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "PMSM", "task": "SC", "control": "Cont"}),
    "Cont-SC-PermExDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "PermExDc", "task": "SC", "control": "Cont"}
    ),
    "Cont-SC-SCIM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "SCIM", "task": "SC", "control": "Cont"}),
    "Cont-SC-SIXPMSM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SIXPMSM", "task": "SC", "control": "Cont"}
    ),
    "Cont-SC-SeriesDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SeriesDc", "task": "SC", "control": "Cont"}
    ),
    "Cont-SC-ShuntDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "ShuntDc", "task": "SC", "control": "Cont"}
    ),
    "Cont-SC-SynRM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "SynRM", "task": "SC", "control": "Cont"}),
    "Cont-TC-DFIM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "DFIM", "task": "TC", "control": "Cont"}),
    "Cont-TC-EESM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "EESM", "task": "TC", "control": "Cont"}),
    "Cont-TC-ExtExDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "ExtExDc", "task": "TC", "control": "Cont"}
    ),
    "Cont-TC-PMSM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "PMSM", "task": "TC", "control": "Cont"}),
    "Cont-TC-PermExDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "PermExDc", "task": "TC", "control": "Cont"}
    ),
    "Cont-TC-SCIM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "SCIM", "task": "TC", "control": "Cont"}),
    "Cont-TC-SIXPMSM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SIXPMSM", "task": "TC", "control": "Cont"}
    ),
    "Cont-TC-SeriesDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SeriesDc", "task": "TC", "control": "Cont"}
    ),
    "Cont-TC-ShuntDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "ShuntDc", "task": "TC", "control": "Cont"}
    ),
    "Cont-TC-SynRM-v0": Entry("jaxrl.envs.motor.drive:MotorDrive", {"motor": "SynRM", "task": "TC", "control": "Cont"}),
    "ContextualLinearBandit-v0": Entry("jaxrl.envs.bandits.linear:ContextualLinearBandit", {}),
    "CoupledRestlessCapacity-v0": Entry("jaxrl.envs.bandits.coupled:Capacity", {}),
    "CoupledRestlessInterventions-v0": Entry("jaxrl.envs.bandits.coupled:Interventions", {}),
    "CoupledRestlessMatching-v0": Entry("jaxrl.envs.bandits.coupled:Matching", {}),
    "CoupledRestlessPath-v0": Entry("jaxrl.envs.bandits.coupled:Path", {}),
    "Darkroom-v0": Entry("jaxrl.envs.tabular.darkroom:Darkroom", {}),
    "DeepSea-bsuite": Entry("jaxrl.envs.bsuite.deep_sea:DeepSea", {}),
    "DeepSea-v0": Entry("jaxrl.envs.bsuite.deep_sea:DeepSea", {"observation": "index"}),
    "DeepSeaStochastic-bsuite": Entry("jaxrl.envs.bsuite.deep_sea:DeepSeaStochastic", {}),
    "DelayedChain-v0": Entry("jaxrl.envs.tabular.delayed_chain:DelayedChain", {}),
    "DigitsBandit-bsuite": Entry("jaxrl.envs.bsuite.digits_bandit:DigitsBandit", {}),
    "DiscountingChain-bsuite": Entry("jaxrl.envs.bsuite.discounting_chain:DiscountingChain", {}),
    "Discrete2D-v0": Entry("jaxrl.envs.tabular.discrete_2d:Discrete2D", {}),
    "DoublePendulum-v0": Entry("jaxrl.envs.classic.double_pendulum:DoublePendulum", {}),
    "DriftingBandit-v0": Entry("jaxrl.envs.bandits.nonstationary:DriftingBandit", {}),
    "DuelingBandit-v0": Entry("jaxrl.envs.bandits.dueling:DuelingBandit", {}),
    "Finite-CC-DFIM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "DFIM", "task": "CC", "control": "Finite"}
    ),
    "Finite-CC-EESM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "EESM", "task": "CC", "control": "Finite"}
    ),
    "Finite-CC-ExtExDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "ExtExDc", "task": "CC", "control": "Finite"}
    ),
    "Finite-CC-PMSM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "PMSM", "task": "CC", "control": "Finite"}
    ),
    "Finite-CC-PermExDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "PermExDc", "task": "CC", "control": "Finite"}
    ),
    "Finite-CC-SCIM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SCIM", "task": "CC", "control": "Finite"}
    ),
    "Finite-CC-SIXPMSM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SIXPMSM", "task": "CC", "control": "Finite"}
    ),
    "Finite-CC-SeriesDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SeriesDc", "task": "CC", "control": "Finite"}
    ),
    "Finite-CC-ShuntDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "ShuntDc", "task": "CC", "control": "Finite"}
    ),
    "Finite-CC-SynRM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SynRM", "task": "CC", "control": "Finite"}
    ),
    "Finite-DTC-PMSM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "PMSM", "task": "DTC", "control": "Finite"}
    ),
    "Finite-DTC-SCIM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SCIM", "task": "DTC", "control": "Finite"}
    ),
    "Finite-FW-PMSM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "PMSM", "task": "FW", "control": "Finite"}
    ),
    "Finite-PC-PMSM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "PMSM", "task": "PC", "control": "Finite"}
    ),
    "Finite-PC-PermExDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "PermExDc", "task": "PC", "control": "Finite"}
    ),
    "Finite-SC-DFIM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "DFIM", "task": "SC", "control": "Finite"}
    ),
    "Finite-SC-EESM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "EESM", "task": "SC", "control": "Finite"}
    ),
    "Finite-SC-ExtExDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "ExtExDc", "task": "SC", "control": "Finite"}
    ),
    "Finite-SC-PMSM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "PMSM", "task": "SC", "control": "Finite"}
    ),
    "Finite-SC-PermExDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "PermExDc", "task": "SC", "control": "Finite"}
    ),
    "Finite-SC-SCIM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SCIM", "task": "SC", "control": "Finite"}
    ),
    "Finite-SC-SIXPMSM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SIXPMSM", "task": "SC", "control": "Finite"}
    ),
    "Finite-SC-SeriesDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SeriesDc", "task": "SC", "control": "Finite"}
    ),
    "Finite-SC-ShuntDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "ShuntDc", "task": "SC", "control": "Finite"}
    ),
    "Finite-SC-SynRM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SynRM", "task": "SC", "control": "Finite"}
    ),
    "Finite-TC-DFIM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "DFIM", "task": "TC", "control": "Finite"}
    ),
    "Finite-TC-EESM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "EESM", "task": "TC", "control": "Finite"}
    ),
    "Finite-TC-ExtExDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "ExtExDc", "task": "TC", "control": "Finite"}
    ),
    "Finite-TC-PMSM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "PMSM", "task": "TC", "control": "Finite"}
    ),
    "Finite-TC-PermExDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "PermExDc", "task": "TC", "control": "Finite"}
    ),
    "Finite-TC-SCIM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SCIM", "task": "TC", "control": "Finite"}
    ),
    "Finite-TC-SIXPMSM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SIXPMSM", "task": "TC", "control": "Finite"}
    ),
    "Finite-TC-SeriesDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SeriesDc", "task": "TC", "control": "Finite"}
    ),
    "Finite-TC-ShuntDc-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "ShuntDc", "task": "TC", "control": "Finite"}
    ),
    "Finite-TC-SynRM-v0": Entry(
        "jaxrl.envs.motor.drive:MotorDrive", {"motor": "SynRM", "task": "TC", "control": "Finite"}
    ),
    "Fishery-v0": Entry("jaxrl.envs.classic.fishery:Fishery", {}),
    "Freeway-MinAtar": Entry("jaxrl.envs.grid.minatar.freeway:Freeway", {}),
    "FrozenLake-v1": Entry("jaxrl.envs.tabular.frozen_lake:FrozenLake", {}),
    "FrozenLake8x8-v1": Entry("jaxrl.envs.tabular.frozen_lake:FrozenLake", {"rows": 8, "columns": 8}),
    "Game2048-v0": Entry("jaxrl.envs.grid.game_2048:Game2048", {}),
    "Garnet-v0": Entry("jaxrl.envs.tabular.garnet:Garnet", {}),
    "GaussianBandit-v0": Entry("jaxrl.envs.bandits.stochastic:GaussianBandit", {}),
    "GridWorld-all-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {"family": "all"}),
    "GridWorld-debug-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {"family": "debug"}),
    "GridWorld-large-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {"family": "large"}),
    "GridWorld-long-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {"family": "long"}),
    "GridWorld-long_dense-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {"family": "long_dense"}),
    "GridWorld-longer-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {"family": "longer"}),
    "GridWorld-mazes-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {"family": "mazes"}),
    "GridWorld-medium-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {"family": "medium"}),
    "GridWorld-rand_all-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {"family": "rand_all"}),
    "GridWorld-rand_dense-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {"family": "rand_dense"}),
    "GridWorld-rand_long-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {"family": "rand_long"}),
    "GridWorld-rand_small-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {"family": "rand_small"}),
    "GridWorld-rand_sparse-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {"family": "rand_sparse"}),
    "GridWorld-rand_very_dense-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {"family": "rand_very_dense"}),
    "GridWorld-small-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {"family": "small"}),
    "GridWorld-sparse-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {"family": "sparse"}),
    "GridWorld-v0": Entry("jaxrl.envs.grid.grid_world:GridWorld", {}),
    "HeavyTailedBandit-v0": Entry("jaxrl.envs.bandits.stochastic:HeavyTailedBandit", {}),
    "LinearBandit-v0": Entry("jaxrl.envs.bandits.linear:LinearBandit", {}),
    "Maze-Crossing-v0": Entry("jaxrl.envs.grid.maze_levels:Crossing", {}),
    "Maze-FourRooms-v0": Entry("jaxrl.envs.grid.maze_levels:FourRooms", {}),
    "Maze-Labyrinth-v0": Entry("jaxrl.envs.grid.maze_levels:Holdout", {"name": "Labyrinth"}),
    "Maze-Labyrinth2-v0": Entry("jaxrl.envs.grid.maze_levels:Holdout", {"name": "Labyrinth2"}),
    "Maze-LabyrinthFlipped-v0": Entry("jaxrl.envs.grid.maze_levels:Holdout", {"name": "LabyrinthFlipped"}),
    "Maze-LargeCorridor-v0": Entry("jaxrl.envs.grid.maze_levels:Corridor", {"size": 19}),
    "Maze-SixteenRooms-v0": Entry("jaxrl.envs.grid.maze_levels:Holdout", {"name": "SixteenRooms"}),
    "Maze-SixteenRooms2-v0": Entry("jaxrl.envs.grid.maze_levels:Holdout", {"name": "SixteenRooms2"}),
    "Maze-SmallCorridor-v0": Entry("jaxrl.envs.grid.maze_levels:Corridor", {}),
    "Maze-StandardMaze-v0": Entry("jaxrl.envs.grid.maze_levels:Holdout", {"name": "StandardMaze"}),
    "Maze-StandardMaze2-v0": Entry("jaxrl.envs.grid.maze_levels:Holdout", {"name": "StandardMaze2"}),
    "Maze-StandardMaze3-v0": Entry("jaxrl.envs.grid.maze_levels:Holdout", {"name": "StandardMaze3"}),
    "Maze-v0": Entry("jaxrl.envs.grid.maze:Maze", {}),
    "MazeEditor-v0": Entry("jaxrl.envs.grid.maze_editor:MazeEditor", {}),
    "MemoryLength-bsuite": Entry("jaxrl.envs.bsuite.memory_chain:MemoryLength", {}),
    "MemorySize-bsuite": Entry("jaxrl.envs.bsuite.memory_chain:MemorySize", {}),
    "Minesweeper-v0": Entry("jaxrl.envs.grid.minesweeper:Minesweeper", {}),
    "MinesweeperLevel-v0": Entry("jaxrl.envs.grid.minesweeper:MinesweeperLevel", {}),
    "MiniGrid-BlockedUnlockPickup-v0": Entry("jaxrl.envs.grid.minigrid.unlock:BlockedUnlockPickup", {}),
    "MiniGrid-DistShift1-v0": Entry("jaxrl.envs.grid.minigrid.dist_shift:DistShift", {}),
    "MiniGrid-DistShift2-v0": Entry("jaxrl.envs.grid.minigrid.dist_shift:DistShift", {"strip": 5}),
    "MiniGrid-DoorKey-16x16-v0": Entry("jaxrl.envs.grid.minigrid.door_key:DoorKey", {"size": 16}),
    "MiniGrid-DoorKey-5x5-v0": Entry("jaxrl.envs.grid.minigrid.door_key:DoorKey", {"size": 5}),
    "MiniGrid-DoorKey-6x6-v0": Entry("jaxrl.envs.grid.minigrid.door_key:DoorKey", {"size": 6}),
    "MiniGrid-DoorKey-8x8-v0": Entry("jaxrl.envs.grid.minigrid.door_key:DoorKey", {}),
    "MiniGrid-Dynamic-Obstacles-16x16-v0": Entry(
        "jaxrl.envs.grid.minigrid.dynamic_obstacles:DynamicObstacles", {"size": 16, "num_obstacles": 8}
    ),
    "MiniGrid-Dynamic-Obstacles-5x5-v0": Entry(
        "jaxrl.envs.grid.minigrid.dynamic_obstacles:DynamicObstacles", {"size": 5, "num_obstacles": 2}
    ),
    "MiniGrid-Dynamic-Obstacles-6x6-v0": Entry(
        "jaxrl.envs.grid.minigrid.dynamic_obstacles:DynamicObstacles", {"size": 6, "num_obstacles": 3}
    ),
    "MiniGrid-Dynamic-Obstacles-8x8-v0": Entry("jaxrl.envs.grid.minigrid.dynamic_obstacles:DynamicObstacles", {}),
    "MiniGrid-Dynamic-Obstacles-Random-5x5-v0": Entry(
        "jaxrl.envs.grid.minigrid.dynamic_obstacles:DynamicObstacles",
        {"size": 5, "num_obstacles": 2, "random_start": True},
    ),
    "MiniGrid-Dynamic-Obstacles-Random-6x6-v0": Entry(
        "jaxrl.envs.grid.minigrid.dynamic_obstacles:DynamicObstacles",
        {"size": 6, "num_obstacles": 3, "random_start": True},
    ),
    "MiniGrid-Empty-16x16-v0": Entry("jaxrl.envs.grid.minigrid.empty:Empty", {"size": 16}),
    "MiniGrid-Empty-5x5-v0": Entry("jaxrl.envs.grid.minigrid.empty:Empty", {"size": 5}),
    "MiniGrid-Empty-6x6-v0": Entry("jaxrl.envs.grid.minigrid.empty:Empty", {"size": 6}),
    "MiniGrid-Empty-8x8-v0": Entry("jaxrl.envs.grid.minigrid.empty:Empty", {}),
    "MiniGrid-Empty-Random-5x5-v0": Entry("jaxrl.envs.grid.minigrid.empty:Empty", {"size": 5, "random_start": True}),
    "MiniGrid-Empty-Random-6x6-v0": Entry("jaxrl.envs.grid.minigrid.empty:Empty", {"size": 6, "random_start": True}),
    "MiniGrid-Fetch-5x5-N2-v0": Entry("jaxrl.envs.grid.minigrid.fetch:Fetch", {"size": 5, "num_objects": 2}),
    "MiniGrid-Fetch-6x6-N2-v0": Entry("jaxrl.envs.grid.minigrid.fetch:Fetch", {"size": 6, "num_objects": 2}),
    "MiniGrid-Fetch-8x8-N3-v0": Entry("jaxrl.envs.grid.minigrid.fetch:Fetch", {}),
    "MiniGrid-FourRooms-v0": Entry("jaxrl.envs.grid.minigrid.four_rooms:FourRooms", {}),
    "MiniGrid-GoToDoor-5x5-v0": Entry("jaxrl.envs.grid.minigrid.go_to_door:GoToDoor", {}),
    "MiniGrid-GoToDoor-6x6-v0": Entry("jaxrl.envs.grid.minigrid.go_to_door:GoToDoor", {"size": 6}),
    "MiniGrid-GoToDoor-8x8-v0": Entry("jaxrl.envs.grid.minigrid.go_to_door:GoToDoor", {"size": 8}),
    "MiniGrid-GoToObject-6x6-N2-v0": Entry("jaxrl.envs.grid.minigrid.go_to_object:GoToObject", {}),
    "MiniGrid-GoToObject-8x8-N2-v0": Entry("jaxrl.envs.grid.minigrid.go_to_object:GoToObject", {"size": 8}),
    "MiniGrid-KeyCorridorS3R1-v0": Entry(
        "jaxrl.envs.grid.minigrid.key_corridor:KeyCorridor", {"room_size": 3, "num_rows": 1}
    ),
    "MiniGrid-KeyCorridorS3R2-v0": Entry(
        "jaxrl.envs.grid.minigrid.key_corridor:KeyCorridor", {"room_size": 3, "num_rows": 2}
    ),
    "MiniGrid-KeyCorridorS3R3-v0": Entry("jaxrl.envs.grid.minigrid.key_corridor:KeyCorridor", {"room_size": 3}),
    "MiniGrid-KeyCorridorS4R3-v0": Entry("jaxrl.envs.grid.minigrid.key_corridor:KeyCorridor", {"room_size": 4}),
    "MiniGrid-KeyCorridorS5R3-v0": Entry("jaxrl.envs.grid.minigrid.key_corridor:KeyCorridor", {"room_size": 5}),
    "MiniGrid-KeyCorridorS6R3-v0": Entry("jaxrl.envs.grid.minigrid.key_corridor:KeyCorridor", {}),
    "MiniGrid-LavaCrossingS11N5-v0": Entry(
        "jaxrl.envs.grid.minigrid.crossing:Crossing", {"size": 11, "num_crossings": 5}
    ),
    "MiniGrid-LavaCrossingS9N1-v0": Entry("jaxrl.envs.grid.minigrid.crossing:Crossing", {}),
    "MiniGrid-LavaCrossingS9N2-v0": Entry("jaxrl.envs.grid.minigrid.crossing:Crossing", {"num_crossings": 2}),
    "MiniGrid-LavaCrossingS9N3-v0": Entry("jaxrl.envs.grid.minigrid.crossing:Crossing", {"num_crossings": 3}),
    "MiniGrid-LavaGapS5-v0": Entry("jaxrl.envs.grid.minigrid.lava_gap:LavaGap", {}),
    "MiniGrid-LavaGapS6-v0": Entry("jaxrl.envs.grid.minigrid.lava_gap:LavaGap", {"size": 6}),
    "MiniGrid-LavaGapS7-v0": Entry("jaxrl.envs.grid.minigrid.lava_gap:LavaGap", {"size": 7}),
    "MiniGrid-LockedRoom-v0": Entry("jaxrl.envs.grid.minigrid.locked_room:LockedRoom", {}),
    "MiniGrid-MemoryS11-v0": Entry("jaxrl.envs.grid.minigrid.memory:Memory", {}),
    "MiniGrid-MemoryS13-v0": Entry("jaxrl.envs.grid.minigrid.memory:Memory", {"size": 13}),
    "MiniGrid-MemoryS13Random-v0": Entry("jaxrl.envs.grid.minigrid.memory:Memory", {"size": 13, "random_length": True}),
    "MiniGrid-MemoryS17Random-v0": Entry("jaxrl.envs.grid.minigrid.memory:Memory", {"size": 17, "random_length": True}),
    "MiniGrid-MemoryS7-v0": Entry("jaxrl.envs.grid.minigrid.memory:Memory", {"size": 7}),
    "MiniGrid-MemoryS9-v0": Entry("jaxrl.envs.grid.minigrid.memory:Memory", {"size": 9}),
    "MiniGrid-MultiRoom-N2-S4-v0": Entry(
        "jaxrl.envs.grid.minigrid.multi_room:MultiRoom", {"num_rooms": 2, "largest": 4}
    ),
    "MiniGrid-MultiRoom-N4-S5-v0": Entry(
        "jaxrl.envs.grid.minigrid.multi_room:MultiRoom", {"num_rooms": 6, "largest": 5}
    ),
    "MiniGrid-MultiRoom-N4-S5-v1": Entry(
        "jaxrl.envs.grid.minigrid.multi_room:MultiRoom", {"num_rooms": 4, "largest": 5}
    ),
    "MiniGrid-MultiRoom-N6-v0": Entry("jaxrl.envs.grid.minigrid.multi_room:MultiRoom", {}),
    "MiniGrid-ObstructedMaze-1Dl-v0": Entry(
        "jaxrl.envs.grid.minigrid.obstructed_maze:ObstructedMaze",
        {"num_quarters": 0, "agent_room": 0, "num_rooms_visited": 2, "key_in_box": False, "blocked": False},
    ),
    "MiniGrid-ObstructedMaze-1Dlh-v0": Entry(
        "jaxrl.envs.grid.minigrid.obstructed_maze:ObstructedMaze",
        {"num_quarters": 0, "agent_room": 0, "num_rooms_visited": 2, "blocked": False},
    ),
    "MiniGrid-ObstructedMaze-1Dlhb-v0": Entry(
        "jaxrl.envs.grid.minigrid.obstructed_maze:ObstructedMaze",
        {"num_quarters": 0, "agent_room": 0, "num_rooms_visited": 2},
    ),
    "MiniGrid-ObstructedMaze-1Q-v0": Entry(
        "jaxrl.envs.grid.minigrid.obstructed_maze:ObstructedMaze",
        {"num_quarters": 1, "num_rooms_visited": 5, "keys_last": False},
    ),
    "MiniGrid-ObstructedMaze-1Q-v1": Entry(
        "jaxrl.envs.grid.minigrid.obstructed_maze:ObstructedMaze", {"num_quarters": 1, "num_rooms_visited": 5}
    ),
    "MiniGrid-ObstructedMaze-2Dl-v0": Entry(
        "jaxrl.envs.grid.minigrid.obstructed_maze:ObstructedMaze",
        {"num_quarters": 1, "agent_room": 5, "num_rooms_visited": 4, "key_in_box": False, "blocked": False},
    ),
    "MiniGrid-ObstructedMaze-2Dlh-v0": Entry(
        "jaxrl.envs.grid.minigrid.obstructed_maze:ObstructedMaze",
        {"num_quarters": 1, "agent_room": 5, "num_rooms_visited": 4, "blocked": False},
    ),
    "MiniGrid-ObstructedMaze-2Dlhb-v0": Entry(
        "jaxrl.envs.grid.minigrid.obstructed_maze:ObstructedMaze",
        {"num_quarters": 1, "agent_room": 5, "num_rooms_visited": 4, "keys_last": False},
    ),
    "MiniGrid-ObstructedMaze-2Dlhb-v1": Entry(
        "jaxrl.envs.grid.minigrid.obstructed_maze:ObstructedMaze",
        {"num_quarters": 1, "agent_room": 5, "num_rooms_visited": 4},
    ),
    "MiniGrid-ObstructedMaze-2Q-v0": Entry(
        "jaxrl.envs.grid.minigrid.obstructed_maze:ObstructedMaze",
        {"num_quarters": 2, "agent_room": 5, "num_rooms_visited": 11, "keys_last": False},
    ),
    "MiniGrid-ObstructedMaze-2Q-v1": Entry(
        "jaxrl.envs.grid.minigrid.obstructed_maze:ObstructedMaze",
        {"num_quarters": 2, "agent_room": 5, "num_rooms_visited": 11},
    ),
    "MiniGrid-ObstructedMaze-Full-v0": Entry(
        "jaxrl.envs.grid.minigrid.obstructed_maze:ObstructedMaze", {"keys_last": False}
    ),
    "MiniGrid-ObstructedMaze-Full-v1": Entry("jaxrl.envs.grid.minigrid.obstructed_maze:ObstructedMaze", {}),
    "MiniGrid-Playground-v0": Entry("jaxrl.envs.grid.minigrid.playground:Playground", {}),
    "MiniGrid-PutNear-6x6-N2-v0": Entry("jaxrl.envs.grid.minigrid.put_near:PutNear", {}),
    "MiniGrid-PutNear-8x8-N3-v0": Entry("jaxrl.envs.grid.minigrid.put_near:PutNear", {"size": 8, "num_objects": 3}),
    "MiniGrid-RedBlueDoors-6x6-v0": Entry("jaxrl.envs.grid.minigrid.red_blue_doors:RedBlueDoors", {"size": 6}),
    "MiniGrid-RedBlueDoors-8x8-v0": Entry("jaxrl.envs.grid.minigrid.red_blue_doors:RedBlueDoors", {}),
    "MiniGrid-SimpleCrossingS11N5-v0": Entry(
        "jaxrl.envs.grid.minigrid.crossing:Crossing", {"size": 11, "num_crossings": 5, "obstacle": "wall"}
    ),
    "MiniGrid-SimpleCrossingS9N1-v0": Entry("jaxrl.envs.grid.minigrid.crossing:Crossing", {"obstacle": "wall"}),
    "MiniGrid-SimpleCrossingS9N2-v0": Entry(
        "jaxrl.envs.grid.minigrid.crossing:Crossing", {"num_crossings": 2, "obstacle": "wall"}
    ),
    "MiniGrid-SimpleCrossingS9N3-v0": Entry(
        "jaxrl.envs.grid.minigrid.crossing:Crossing", {"num_crossings": 3, "obstacle": "wall"}
    ),
    "MiniGrid-Unlock-v0": Entry("jaxrl.envs.grid.minigrid.unlock:Unlock", {}),
    "MiniGrid-UnlockPickup-v0": Entry("jaxrl.envs.grid.minigrid.unlock:UnlockPickup", {}),
    "MountainCar-bsuite": Entry("jaxrl.envs.bsuite.mountain_car:MountainCar", {}),
    "MountainCar-v0": Entry("jaxrl.envs.classic.mountain_car:MountainCar", {}),
    "MountainCarContinuous-v0": Entry("jaxrl.envs.classic.mountain_car_continuous:MountainCarContinuous", {}),
    "OpenGrid-v0": Entry("jaxrl.envs.tabular.proc_maze:OpenGrid", {}),
    "PanFlute-v0": Entry("jaxrl.envs.tabular.pan_flute:PanFlute", {}),
    "Pendulum-v1": Entry("jaxrl.envs.classic.pendulum:Pendulum", {}),
    "PerfectMaze101-v0": Entry("jaxrl.envs.grid.maze_levels:PerfectMaze", {"size": 101}),
    "PerfectMaze13-v0": Entry("jaxrl.envs.grid.maze_levels:PerfectMaze", {}),
    "PerfectMaze19-v0": Entry("jaxrl.envs.grid.maze_levels:PerfectMaze", {"size": 19}),
    "PiecewiseBandit-v0": Entry("jaxrl.envs.bandits.nonstationary:PiecewiseBandit", {}),
    "PointMass-v0": Entry("jaxrl.envs.classic.point_mass:PointMass", {}),
    "ProcMaze-v0": Entry("jaxrl.envs.tabular.proc_maze:ProcMaze", {}),
    "Quadcopter-Flock-v0": Entry("jaxrl.envs.quadcopter.flock:Flock", {}),
    "Quadcopter-Formation-v0": Entry("jaxrl.envs.quadcopter.formation:Formation", {}),
    "Quadcopter-GateRacing-v0": Entry("jaxrl.envs.quadcopter.gate_racing:GateRacing", {}),
    "Quadcopter-GpdHover-v0": Entry("jaxrl.envs.quadcopter.gpd_hover:GpdHover", {}),
    "Quadcopter-Hover-v0": Entry("jaxrl.envs.quadcopter.hover:Hover", {}),
    "Quadcopter-Landing-v0": Entry("jaxrl.envs.quadcopter.landing:Landing", {}),
    "Quadcopter-LeaderFollower-v0": Entry("jaxrl.envs.quadcopter.leader_follower:LeaderFollower", {}),
    "Quadcopter-Meetup-v0": Entry("jaxrl.envs.quadcopter.meetup:Meetup", {}),
    "Quadcopter-MultiHover-v0": Entry("jaxrl.envs.quadcopter.multi_hover:MultiHover", {}),
    "Quadcopter-Payload-v0": Entry("jaxrl.envs.quadcopter.payload:Payload", {}),
    "Quadcopter-Reach-v0": Entry("jaxrl.envs.quadcopter.reach:Reach", {}),
    "Quadcopter-ReachAvoid-v0": Entry("jaxrl.envs.quadcopter.reach_avoid:ReachAvoid", {}),
    "Quadcopter-Recover-v0": Entry("jaxrl.envs.quadcopter.recover:Recover", {}),
    "Quadcopter-TimedGates-v0": Entry("jaxrl.envs.quadcopter.timed_gates:TimedGates", {}),
    "Quadcopter-TrajectoryTracking-v0": Entry("jaxrl.envs.quadcopter.trajectory_tracking:TrajectoryTracking", {}),
    "Quadcopter-VelocityTracking-v0": Entry("jaxrl.envs.quadcopter.velocity_tracking:VelocityTracking", {}),
    "Reacher-v0": Entry("jaxrl.envs.classic.reacher:Reacher", {}),
    "RestlessBandit-v0": Entry("jaxrl.envs.bandits.restless:RestlessBandit", {}),
    "RiverSwim-v0": Entry("jaxrl.envs.tabular.river_swim:RiverSwim", {}),
    "Seaquest-MinAtar": Entry("jaxrl.envs.grid.minatar.seaquest:Seaquest", {}),
    "SixArms-v0": Entry("jaxrl.envs.tabular.six_arms:SixArms", {}),
    "Snake-v0": Entry("jaxrl.envs.grid.snake:Snake", {}),
    "Sokoban-v0": Entry("jaxrl.envs.grid.sokoban:Sokoban", {}),
    "SokobanLevel-v0": Entry("jaxrl.envs.grid.sokoban:SokobanLevel", {}),
    "SpaceInvaders-MinAtar": Entry("jaxrl.envs.grid.minatar.space_invaders:SpaceInvaders", {}),
    "SparseLinearBandit-v0": Entry("jaxrl.envs.bandits.linear:SparseLinearBandit", {}),
    "StumpWalker-v0": Entry("jaxrl.envs.physics.stump_walker:StumpWalker", {}),
    "SwitchingBandit-v0": Entry("jaxrl.envs.bandits.nonstationary:SwitchingBandit", {}),
    "Taxi-v4": Entry("jaxrl.envs.tabular.taxi:Taxi", {}),
    "TwoGoalGrid-v0": Entry("jaxrl.envs.tabular.two_goal_grid:TwoGoalGrid", {}),
    "TwoSidedChain-v0": Entry("jaxrl.envs.tabular.two_sided_chain:TwoSidedChain", {}),
    "TwoStepTree-v0": Entry("jaxrl.envs.tabular.two_step_tree:TwoStepTree", {}),
    "UmbrellaDistract-bsuite": Entry("jaxrl.envs.bsuite.umbrella_chain:Umbrella", {"n_distractor": 100}),
    "UmbrellaLength-bsuite": Entry("jaxrl.envs.bsuite.umbrella_chain:Umbrella", {}),
    "WindyGridworld-v0": Entry("jaxrl.envs.tabular.windy_gridworld:WindyGridworld", {}),
    "WindyWalk-v0": Entry("jaxrl.envs.tabular.windy_walk:WindyWalk", {}),
    "XLand-MiniGrid-R1-11x11": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R1", "size": 11}),
    "XLand-MiniGrid-R1-13x13": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R1", "size": 13}),
    "XLand-MiniGrid-R1-15x15": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R1", "size": 15}),
    "XLand-MiniGrid-R1-17x17": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R1", "size": 17}),
    "XLand-MiniGrid-R1-9x9": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R1", "size": 9}),
    "XLand-MiniGrid-R2-11x11": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R2", "size": 11}),
    "XLand-MiniGrid-R2-13x13": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R2", "size": 13}),
    "XLand-MiniGrid-R2-15x15": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R2", "size": 15}),
    "XLand-MiniGrid-R2-17x17": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R2", "size": 17}),
    "XLand-MiniGrid-R2-9x9": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R2", "size": 9}),
    "XLand-MiniGrid-R4-11x11": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R4", "size": 11}),
    "XLand-MiniGrid-R4-13x13": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R4", "size": 13}),
    "XLand-MiniGrid-R4-15x15": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R4", "size": 15}),
    "XLand-MiniGrid-R4-17x17": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R4", "size": 17}),
    "XLand-MiniGrid-R4-9x9": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R4", "size": 9}),
    "XLand-MiniGrid-R6-13x13": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R6", "size": 13}),
    "XLand-MiniGrid-R6-17x17": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R6", "size": 17}),
    "XLand-MiniGrid-R6-19x19": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R6", "size": 19}),
    "XLand-MiniGrid-R9-16x16": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R9", "size": 16}),
    "XLand-MiniGrid-R9-19x19": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R9", "size": 19}),
    "XLand-MiniGrid-R9-25x25": Entry("jaxrl.envs.grid.rule_world:RuleWorld", {"layout": "R9", "size": 25}),
}

# The modules of jaxrl.algos, and the action spaces of those that learn on any environment with such a space.
ALGORITHMS: dict[str, tuple[str, ...]] = {
    "a2c": ("Discrete", "MultiDiscrete", "Box"),
    "alphazero": ("Discrete",),
    "apg": ("Box",),
    "c51": ("Discrete",),
    "crossq": ("Box",),
    "ddpg": ("Box",),
    "dpt": (),
    "dqn": ("Discrete",),
    "dyna_q": (),
    "epsilon_greedy": (),
    "evolution": ("Discrete", "MultiDiscrete", "Box"),
    "exp3": (),
    "gorp": (),
    "iqn": ("Discrete",),
    "lin_ts": (),
    "lin_ucb": (),
    "nonstationary_ucb": (),
    "ppo": ("Discrete", "MultiDiscrete", "Box"),
    "ppo_rnn": ("Discrete", "MultiDiscrete", "Box"),
    "pqn": ("Discrete",),
    "props": ("Discrete", "MultiDiscrete", "Box"),
    "psrl": (),
    "q_learning": (),
    "qr_dqn": ("Discrete",),
    "r_max": (),
    "rainbow": ("Discrete",),
    "reinforce": ("Discrete", "MultiDiscrete", "Box"),
    "rnd": ("Discrete", "MultiDiscrete", "Box"),
    "sac": ("Discrete", "Box"),
    "sarsa": (),
    "sqirl": (),
    "stream_ac": ("Discrete", "MultiDiscrete", "Box"),
    "stream_q": ("Discrete", "Box"),
    "stream_td": (),
    "successive_elimination": (),
    "td3": ("Box",),
    "thompson": (),
    "ucb": (),
    "ucb_vi": (),
    "whittle": (),
}

# The curricula of jaxrl.algos that `--curriculum NAME` puts around a student, and what they choose: levels that a
# function draws, or points of a box of parameters.
CURRICULA: dict[str, str] = {
    "accel": "levels",
    "adr": "points",
    "alp_gmm": "points",
    "covar_gmm": "points",
    "dr": "levels",
    "oracle_teacher": "points",
    "plr": "levels",
    "random_teacher": "points",
    "riac": "points",
    "self_paced": "points",
    "sfl": "levels",
}
