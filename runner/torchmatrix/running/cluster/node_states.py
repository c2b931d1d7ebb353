"""What Slurm's words for the state of a node mean to a job that asks for this node."""

import re
from dataclasses import dataclass

_AT_ONCE = (
    "idle", "allocated", "alloc", "mixed", "mix", "completing", "comp", "planned", "plnd", "-", "blocked", "block", "cloud",
    "dynamic", "dynamic_norm", "dynamic_future", "resume", "resm", "undrain", "cancel_reboot", "canc_r",
)  # fmt: skip
"""A job waits for its turn at most."""
_LATER = {
    "it is powered down; Slurm starts it for a job": ("powered_down", "powered_dn", "~"),
    "it is being started": ("powering_up", "power_up", "pow_up", "#"),
    "it is being powered down; Slurm starts it again for a job": ("powering_down", "powring_dn", "%"),
    "it is about to be powered down; Slurm starts it again for a job": ("power_down", "pow_dn", "!"),
    "it is to be rebooted first": ("reboot_requested", "@"),
    "it is being rebooted": ("reboot_issued", "reboot", "boot", "^"),
}
"""Slurm brings the node up by itself; until then it need not answer. https://slurm.schedmd.com/power_save.html"""
_NEVER = {
    "it is down": ("down",),
    "it is drained: an administrator took it out of service": ("drained", "drain", "draining", "drng", "power_drain"),
    "it is expected to fail soon": ("fail", "failing", "failg"),
    "it is in an error state": ("error",),
    "it is not set up yet": ("future", "futr"),
    "it did not register as slurm.conf describes it": ("inval", "invalid_reg"),
    "it is reserved for maintenance": ("maint", "maintenance", "$"),
    "its network performance counters are in use": ("perfctrs", "npc"),
    "it is reserved": ("reserved", "resv"),
    "the controller does not know its state yet": ("unknown", "unk"),
}
"""Somebody has to do something first."""
_SILENT = ("not_responding", "no_respond", "*")
_MEANING = {word: meaning for table in (_LATER, _NEVER) for meaning, words in table.items() for word in words}
_KNOWN = {*_MEANING, *_AT_ONCE, *_SILENT}
_WORDS = re.compile(r"[a-z_]+|[^a-z_+]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Whether a job can be expected to run on a node; why not, or what it waits for; empty: only for its turn."""

    is_usable: bool
    why: str = ""


def standing(state: str) -> Standing:
    """By a state as `sinfo` prints it (idle~, drain) or `scontrol` (IDLE+CLOUD+POWERED_DOWN): base states, flags and suffixes.

    All of them stand in https://slurm.schedmd.com/sinfo.html#SECTION_NODE-STATE-CODES and under "show node" in
    https://slurm.schedmd.com/scontrol.html, short forms in Slurm's node_state_string_compact.
    """
    words = _WORDS.findall(state.lower())
    strange = [word for word in words if word not in _KNOWN]
    if strange or not words:
        return Standing(is_usable=False, why=f"Slurm's word for its state isn't known here: \"{' '.join(strange)}\"")
    meanings = [_MEANING[word] for word in words if word in _MEANING]
    for meaning in meanings:
        if meaning in _NEVER:
            return Standing(is_usable=False, why=meaning)
    if not meanings and set(words) & set(_SILENT):
        return Standing(is_usable=False, why="it does not answer")
    return Standing(is_usable=True, why="; ".join(dict.fromkeys(meanings)))
