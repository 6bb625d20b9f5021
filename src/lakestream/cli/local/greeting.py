"""What `lakestream up` shows: a panel that calls ready only what serves, then a line for every change."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from lakestream.cli.console import out, say, warn
from lakestream.cli.local.children import Child
from lakestream.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_CATALOG


@dataclass(frozen=True, slots=True)
class ListedDoor:
    """A child, and the address at which clients reach it."""

    child: Child
    address: str


class Greeting:
    """The parts of one `up`. Until the panel is shown, changes are what it will tell."""

    def __init__(
        self,
        data: Path,
        brokers: Sequence[ListedDoor],
        http: Sequence[ListedDoor],
        pipeline: Child | None,
        facts: Sequence[tuple[str, str]] = (),
    ) -> None:
        """`facts`: what else the panel tells."""
        self.data = data
        self._facts = facts
        self.brokers = brokers
        self.http = http
        self.pipeline = pipeline
        self.shown = False

    def on_change(self, child: Child) -> None:
        if not self.shown:
            return
        if not child.serving.is_set():
            warn(child.failure)
        elif child is self.pipeline:
            say("The pipeline is running: records appear in their tables within seconds.")
        else:
            for door in self.http:
                if door.child is child:
                    say(f"The catalog answers at {_catalog(door)}.")
            for door in self.brokers:
                if door.child is child:
                    say(f"{child.name} answers at {door.address}.")

    def refusals(self) -> list[str]:
        """Why no broker can serve, each reason once; nothing if one of them serves, or may when it is tried again."""
        if all(door.child.refused and not door.child.serving.is_set() for door in self.brokers):
            said = (door.child.failure.removeprefix(f"{door.child.name}: ") for door in self.brokers)
            return [*dict.fromkeys(said)]
        return []

    def show(self, seconds: float) -> None:
        self.shown = True
        serving = [door for door in self.brokers if door.child.serving.is_set()]
        first = (serving or self.brokers)[0].address
        catalog = _catalog(self.http[0])
        program = os.path.relpath(sys.argv[0]) if Path(sys.argv[0]).name == "lakestream" else "python -m lakestream.cli"
        bootstrap = "" if first == DEFAULT_BOOTSTRAP else f" -b {first}"
        rest = "" if catalog == DEFAULT_CATALOG else f" --catalog {catalog}"
        facts = Table.grid(padding=(0, 2))
        facts.add_column(style="dim")
        facts.add_column(overflow="fold")
        facts.add_row("Kafka", ", ".join(door.address for door in serving) or "[bold red]no broker answers[/]")
        for door in self.brokers:
            if not door.child.serving.is_set():
                why = door.child.failure or f"{door.child.name} is starting"
                facts.add_row("[bold yellow]missing[/]", escape(f"{door.address}: {why}"))
        facts.add_row("Catalog", f"{', '.join(map(_catalog, self.http))} [dim](starting)[/]")
        for name, told in self._facts:
            facts.add_row(name, escape(told))
        facts.add_row("Data", escape(str(self.data)))
        facts.add_row("Pipeline", "starting; nothing waits for it" if self.pipeline else "not started")
        facts.add_row()
        facts.add_row("Try", f"{program} demo{bootstrap}")
        facts.add_row("", f"{program} consume orders --from-beginning{bootstrap}")
        facts.add_row("", f"{program} table query 'SELECT count(*) FROM orders'{rest}")
        title = f"[bold]lakestream[/] ready in {seconds:.1f} s"
        if len(serving) < len(self.brokers):
            title = f"[bold]lakestream[/]: {len(serving)} of {len(self.brokers)} brokers ready after {seconds:.1f} s"
        out.print(Panel(facts, title=title, subtitle="Ctrl-C stops everything", expand=False, padding=(1, 2)))


def _catalog(door: ListedDoor) -> str:
    return f"http://{door.address}/iceberg"
