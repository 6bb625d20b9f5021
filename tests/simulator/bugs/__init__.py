"""Planted bugs: each breaks one rule of the protocol, and the simulator must notice.

They break the real code from outside, at its public seams, for the length of one context, and exist nowhere else.
"""

from simulator.bugs import (
    appending,
    coordinating,
    copying,
    inserting,
    keeping,
    losing,
    moving,
    oxia,
    reading,
    telling,
    transactions,
    typing,
)
from simulator.bugs.registry import BUGS, seeds_for, stage_of
from simulator.bugs.searching import find

__all__ = [
    "BUGS",
    "appending",
    "coordinating",
    "copying",
    "find",
    "inserting",
    "keeping",
    "losing",
    "moving",
    "oxia",
    "reading",
    "seeds_for",
    "stage_of",
    "telling",
    "transactions",
    "typing",
]
