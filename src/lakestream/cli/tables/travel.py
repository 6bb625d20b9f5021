"""`lakestream table snapshots`, `tag` and `rollback`: a table's past, and its way back there."""

from typing import Annotated, Any

import typer

from lakestream.cli.console import emit_json, fail, out, say, show_table
from lakestream.cli.options import DEFAULT_CATALOG, Catalog, Json, Table
from lakestream.cli.tables.history import MAIN, Snapshot, TableHistory, uncovered, written
from lakestream.cli.tables.rest import CatalogError, RestTables


def snapshots(name: Table, catalog: Catalog = DEFAULT_CATALOG, json: Json = False) -> None:
    """List a table's snapshots, each with the offsets at which it ends.

    `offsets` is, for each partition, the first offset that the snapshot does not cover. A snapshot that is not on main
    was rolled back, or belongs to a branch.
    """
    history = RestTables(catalog).find(name)
    if json:
        emit_json([_facts(snapshot, history) for snapshot in history.snapshots])
        return
    rows = [
        (
            snapshot.snapshot_id,
            snapshot.time,
            snapshot.operation,
            snapshot.rows,
            written(snapshot.vector),
            "yes" if snapshot.on_main else "no",
            " ".join(snapshot.tags),
        )
        for snapshot in history.snapshots
    ]
    columns = ["snapshot", "time", "operation", "rows", "offsets", "on main", "names"]
    show_table(columns, rows, title=f"{history.table}, up to {written(history.frontier)}")


def tag(
    name: Table,
    tag_name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")],
    snapshot: Annotated[
        str | None, typer.Option("--snapshot", metavar="ID|TAG", help="Which one; the present one if left out.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the tag away instead.")] = False,
    catalog: Catalog = DEFAULT_CATALOG,
    json: Json = False,
) -> None:
    """Give a snapshot a name. It is then kept, with its files, until the tag is removed."""
    tables = RestTables(catalog)
    history = tables.find(name)
    present = history.find(tag_name) if any(tag_name in each.tags for each in history.snapshots) else None
    if tag_name == MAIN:
        fail(f"{MAIN} is the branch that consumers read: choose another name")
    if remove:
        if present is None or snapshot is not None:
            fail(
                f"{history.table} has no tag {tag_name!r}" if present is None else "leave --snapshot out with --remove"
            )
        update: dict[str, Any] = {"action": "remove-snapshot-ref", "ref-name": tag_name}
        target = present
    else:
        if present is not None:
            fail(f"{history.table} has {tag_name!r} already, on snapshot {present.snapshot_id}: remove it first")
        target = snapshot_of(history, snapshot)
        update = {
            "action": "set-snapshot-ref",
            "ref-name": tag_name,
            "type": "tag",
            "snapshot-id": target.snapshot_id,
        }
    before = None if present is None else present.snapshot_id
    _change(tables, history, {"type": "assert-ref-snapshot-id", "ref": tag_name, "snapshot-id": before}, update)
    if json:
        emit_json({"table": history.table, "tag": tag_name, "removed": remove} | _facts(target, history))
    elif remove:
        out.print(f"Removed tag [bold]{tag_name}[/] from snapshot {target.snapshot_id} of {history.table}.")
    else:
        out.print(f"Snapshot {target.snapshot_id} of {history.table} is now [bold]{tag_name}[/].")


def rollback(
    name: Table,
    to_snapshot: Annotated[str, typer.Option("--to-snapshot", metavar="ID|TAG", help="The snapshot to go back to.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Say what would happen, and change nothing.")
    ] = False,
    catalog: Catalog = DEFAULT_CATALOG,
    json: Json = False,
) -> None:
    """Make an earlier snapshot the table again.

    A rollback is a delete. Rows that came after the snapshot leave the table, and with it the stream: consumers pass
    over their offsets, which are never given to other records. Records that are not in the table yet are not touched:
    they are committed on top of the snapshot, in their turn.
    """
    tables = RestTables(catalog)
    history = tables.find(name)
    current, target = history.current, snapshot_of(history, to_snapshot)
    if current is None or target.vector is None:
        fail(f"{history.table} cannot go back to snapshot {target.snapshot_id}: it does not say where it ends")
    if target.snapshot_id == current.snapshot_id:
        fail(f"{history.table} is at snapshot {target.snapshot_id} already")
    if not target.on_main and target.snapshot_id not in {snapshot_id for _, snapshot_id in history.main_log}:
        fail(f"snapshot {target.snapshot_id} was never main of {history.table}, so consumers cannot go back to it")
    gone = uncovered(target.vector, history.frontier)
    if not json:
        say(f"{history.table} goes from snapshot {current.snapshot_id} back to {target.snapshot_id} of {target.time}.")
        say(f"It then has {target.rows} rows; now it has {current.rows}.")
        if gone:
            say(f"Offsets {', '.join(gone)} become gaps: consumers pass over them, and they are never used again.")
        say(f"Records from {written(history.frontier)} on are not touched: they are committed on top, in their turn.")
    if not dry_run:
        if not yes and not json:
            typer.confirm(f"Roll {history.table} back?", abort=True)
        update = {
            "action": "set-snapshot-ref",
            "ref-name": MAIN,
            "type": "branch",
            "snapshot-id": target.snapshot_id,
        }
        requirement = {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": current.snapshot_id}
        _change(tables, history, requirement, update)
    if json:
        facts = {"table": history.table, "rolled_back": not dry_run, "from": current.snapshot_id, "gaps": gone}
        emit_json(facts | _facts(target, history))
    elif not dry_run:
        out.print(f"Rolled back. The way forth again: --to-snapshot {current.snapshot_id}, until that one expires.")


def snapshot_of(history: TableHistory, text: str | None) -> Snapshot:
    """By id or name; the present one for None. Ends the command if there is none."""
    found = history.current if text is None else history.find(text)
    if found is None:
        fail(f"{history.table} has no snapshot or tag {text!r}; `lakestream table snapshots` lists them")
    return found


def _change(tables: RestTables, history: TableHistory, requirement: dict[str, Any], update: dict[str, Any]) -> None:
    try:
        tables.change(history, [requirement], [update])
    except CatalogError as error:
        fail(f"{history.table} was not changed: {error}")


def _facts(snapshot: Snapshot, history: TableHistory) -> dict[str, Any]:
    return {
        "snapshot_id": snapshot.snapshot_id,
        "time": snapshot.time,
        "operation": snapshot.operation,
        "rows": snapshot.rows,
        "offsets": None if snapshot.vector is None else list(snapshot.vector),
        "on_main": snapshot.on_main,
        "current": snapshot.snapshot_id == history.current_id,
        "names": list(snapshot.tags),
    }
