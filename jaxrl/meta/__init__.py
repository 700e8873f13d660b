"""Meta-learning of update rules: the protocol of rules, agents that learn by one, and how rules are learned."""

from jaxrl.meta.agent import AgentConfig, AgentHyper, agent
from jaxrl.meta.rule import Lifetime, Seen, UpdateRule

__all__ = ["AgentConfig", "AgentHyper", "Lifetime", "Seen", "UpdateRule", "agent"]
