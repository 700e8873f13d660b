"""Learning to learn: what an update rule is, the agent that learns by one, and how rules are learned. docs/meta.md."""

from jaxrl.meta.agent import AgentConfig, AgentHyper, agent
from jaxrl.meta.rule import Lifetime, Seen, UpdateRule

__all__ = ["AgentConfig", "AgentHyper", "Lifetime", "Seen", "UpdateRule", "agent"]
