"""Runs what the contract suites check in a simulated world: its own event loop, its own time, no faults."""

import asyncio
from random import Random

from simulator.faults import Faults
from simulator.loop import SimulatedLoop
from simulator.world import World


def runner(backend: str) -> asyncio.Runner:
    """Simulated backends only work in their own loop."""
    return asyncio.Runner(loop_factory=SimulatedLoop if backend.endswith("simulated") else None)


def calm_world(loop: asyncio.AbstractEventLoop) -> World:
    assert isinstance(loop, SimulatedLoop)
    return World(loop, Random(7), Faults())
