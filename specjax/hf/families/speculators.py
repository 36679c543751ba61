"""Fields that all layouts of vLLM's speculators share: the target's name and how to draft."""

from __future__ import annotations

from typing import Any


def read_target_name(words: Any) -> str:
    """The name of the target in `speculators_config`; empty where there is none."""
    try:
        return words["verifier"]["name_or_path"] or ""
    except (KeyError, TypeError):
        return ""


def describe_proposal(algorithm: str, tokens: int, target_name: str) -> dict[str, Any]:
    """`speculators_config`: an engine's default draft settings, with drafts of so many tokens."""
    greedy = {
        "proposal_type": "greedy",
        "speculative_tokens": tokens,
        "verifier_accept_k": 1,
        "accept_tolerance": 0.0,
    }
    return {
        "algorithm": algorithm,
        "default_proposal_method": "greedy",
        "proposal_methods": [greedy],
        "verifier": {"name_or_path": target_name or None, "architectures": []},
    }
