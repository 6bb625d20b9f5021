"""How commands talk: results to standard output, everything else to standard error."""

import json
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def fail(sentence: str) -> NoReturn:
    """Ends the command with one sentence and status 1."""
    complain(sentence)
    raise typer.Exit(1)


def complain(sentence: str) -> None:
    err.print(f"[bold red]error[/] {_plain(sentence)}", soft_wrap=True)


def warn(sentence: str) -> None:
    err.print(f"[bold yellow]warning[/] {_plain(sentence)}", soft_wrap=True)


def say(sentence: str) -> None:
    err.print(_plain(sentence), soft_wrap=True)


def emit_json(value: Any) -> None:
    """One JSON document on one line, for scripts."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def show_table(columns: Iterable[str], rows: Iterable[Iterable[Any]], *, title: str | None = None) -> None:
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*("" if cell is None else _plain(str(cell)) for cell in row))
    out.print(table)


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
