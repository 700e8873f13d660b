"""The ids of quadcopter tasks: "module:Class" in this folder, and the static settings an id stands for."""

from __future__ import annotations

from jaxrl.registry import Entry, entries

ENVIRONMENTS: dict[str, Entry] = entries(
    __package__,
    {
        "Quadcopter-Flock-v0": ("swarms.flock:Flock", {}),
        "Quadcopter-Formation-v0": ("swarms.formation:Formation", {}),
        "Quadcopter-GateRacing-v0": ("tasks.gate_racing:GateRacing", {}),
        "Quadcopter-GpdHover-v0": ("tasks.gpd_hover:GpdHover", {}),
        "Quadcopter-Hover-v0": ("tasks.hover:Hover", {}),
        "Quadcopter-Landing-v0": ("tasks.landing:Landing", {}),
        "Quadcopter-LeaderFollower-v0": ("swarms.leader_follower:LeaderFollower", {}),
        "Quadcopter-Meetup-v0": ("swarms.meetup:Meetup", {}),
        "Quadcopter-MultiHover-v0": ("swarms.multi_hover:MultiHover", {}),
        "Quadcopter-Payload-v0": ("tasks.payload:Payload", {}),
        "Quadcopter-Reach-v0": ("tasks.reach:Reach", {}),
        "Quadcopter-ReachAvoid-v0": ("tasks.reach_avoid:ReachAvoid", {}),
        "Quadcopter-Recover-v0": ("tasks.recover:Recover", {}),
        "Quadcopter-TimedGates-v0": ("tasks.timed_gates:TimedGates", {}),
        "Quadcopter-TrajectoryTracking-v0": ("tasks.trajectory_tracking:TrajectoryTracking", {}),
        "Quadcopter-VelocityTracking-v0": ("tasks.velocity_tracking:VelocityTracking", {}),
    },
)
