"""`lakestream group`: list, describe, rewind, delete."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec

from lakestream.cli.clients.admin import open_admin, reason
from lakestream.cli.clients.positions import (
    Partition,
    Positions,
    committed,
    described,
    offsets_at,
    partition_counts,
    store,
)
from lakestream.cli.console import emit_json, fail, out, say, show_table
from lakestream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_CATALOG,
    REQUEST_TIMEOUT_S,
    Bootstrap,
    Catalog,
    Json,
    parse_time,
)
from lakestream.cli.tables.rest import CatalogError, RestTables

app = typer.Typer(
    no_args_is_help=True, help="Look at consumer groups, and move them to a time or to a snapshot of the table."
)

Name = Annotated[str, typer.Argument(help="The group's name.", metavar="GROUP")]


@app.command("list")
def list_(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """List the groups."""
    admin = open_admin(bootstrap)
    try:
        found = admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result(REQUEST_TIMEOUT_S * 2)
    except (KafkaException, TimeoutError) as error:
        fail(f"the groups could not be listed: {reason(error)}")
    if found.errors:
        say(f"A broker did not answer, so groups may be missing: {reason(found.errors[0])}")
    groups = sorted((group.group_id, group.state.name.lower()) for group in found.valid)
    if json:
        emit_json([{"group": name, "state": state} for name, state in groups])
    elif groups:
        show_table(["group", "state"], groups)
    else:
        out.print("There are no groups. Try: lakestream consume orders --group readers")


@app.command()
def describe(
    name: Name,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    catalog: Catalog = DEFAULT_CATALOG,
    json: Json = False,
) -> None:
    """Show a group: its members, how far it is in each partition, and which snapshot it has read to its end."""
    admin = open_admin(bootstrap)
    group = described(admin, name)
    positions = committed(admin, name)
    ends = offsets_at(admin, positions, OffsetSpec.latest())
    members = [_member(member) for member in group.members]
    readers = {part: member["member"] for member in members for part in member["partitions"]}
    rows = [
        (*part, offset, ends[part], max(ends[part] - offset, 0), readers.get(part))
        for part, offset in sorted(positions.items())
    ]
    keys = ("topic", "partition", "committed", "end", "lag", "member")
    try:
        snapshots = _consumed(RestTables(catalog), positions)
    except CatalogError as error:
        snapshots = []
        say(f"Snapshots are not shown: {error}")
    if json:
        for member in members:
            member["partitions"] = [f"{topic}/{index}" for topic, index in member["partitions"]]
        emit_json(
            {
                "group": name,
                "state": group.state.name.lower(),
                "members": members,
                "partitions": [dict(zip(keys, row, strict=True)) for row in rows],
                "snapshots": snapshots,
            }
        )
        return
    out.print(f"Group [bold]{name}[/] is {group.state.name.lower()}, {len(members)} members.")
    if members:
        show_table(
            ["member", "client", "host", "partitions"],
            [(member["member"], member["client"], member["host"], _listed(member["partitions"])) for member in members],
        )
    show_table(keys, rows)
    for found in snapshots:
        say(f"{found['topic']}: read to the end of snapshot {found['snapshot_id']} of {found['time']}.")


@app.command()
def rewind(
    name: Name,
    to_snapshot: Annotated[
        str | None, typer.Option("--to-snapshot", metavar="ID|TAG", help="To where a snapshot of the table ends.")
    ] = None,
    to_timestamp: Annotated[
        str | None,
        typer.Option("--to-timestamp", metavar="TIME", help="To the first record of that time (ISO 8601) or later."),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the oldest record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    topic: Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only this topic. May be repeated.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show what would change, and change nothing.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    catalog: Catalog = DEFAULT_CATALOG,
    json: Json = False,
) -> None:
    """Move a group, back or forth: its members then go on from there.

    The group must have no members while it is moved. A snapshot carries the offsets at which it ends: after
    --to-snapshot the group reads exactly the records that the snapshot does not have.

    Examples:

      lakestream group rewind readers --to-snapshot before-the-sale

      lakestream group rewind readers --to-timestamp 2026-03-01T08:00:00Z --topic orders --dry-run
    """
    if sum((to_snapshot is not None, to_timestamp is not None, to_earliest, to_latest)) != 1:
        fail("say where to, once: --to-snapshot, --to-timestamp, --to-earliest or --to-latest")
    admin = open_admin(bootstrap)
    before = committed(admin, name)
    partitions = _partitions(admin, bootstrap, name, before, topic)
    _check_empty(admin, name, known=bool(before))
    starts, ends = (offsets_at(admin, partitions, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
    if to_snapshot is not None:
        wanted = _snapshot_ends(RestTables(catalog), partitions, to_snapshot, every=bool(topic))
    elif to_timestamp is not None:
        at = offsets_at(admin, partitions, OffsetSpec.for_timestamp(parse_time(to_timestamp)))
        wanted = {part: ends[part] if offset < 0 else offset for part, offset in at.items()}
    else:
        wanted = starts if to_earliest else ends
    after = {part: min(max(offset, starts[part]), ends[part]) for part, offset in wanted.items()}
    for part in sorted(part for part in after if wanted[part] < starts[part]):
        say(f"{part[0]}/{part[1]}: offset {wanted[part]} is gone from the stream, it begins at {starts[part]} now.")
    if not dry_run:
        store(admin, name, after)
    _show_moves(name, before, after, dry_run=dry_run, json=json)


@app.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Forget a group and its offsets. It must have no members."""
    admin = open_admin(bootstrap)
    if not yes and not json:
        typer.confirm(f"Delete group {name}?", abort=True)
    try:
        [future] = admin.delete_consumer_groups([name], request_timeout=REQUEST_TIMEOUT_S).values()
        future.result(REQUEST_TIMEOUT_S * 2)
    except (KafkaException, TimeoutError) as error:
        fail(f"group {name!r} was not deleted: {reason(error)}")
    if json:
        emit_json({"group": name, "deleted": True})
    else:
        out.print(f"Deleted group [bold]{name}[/].")


def _partitions(
    admin: AdminClient, bootstrap: str, group: str, positions: Positions, topics: Iterable[str] | None
) -> list[Partition]:
    """All partitions of the topics to move: those that were named, else those that the group has read."""
    counts = partition_counts(admin, bootstrap)
    names = sorted(set(topics or ())) or sorted({topic for topic, _ in positions})
    for unknown in (name for name in names if name not in counts):
        fail(f"there is no topic {unknown!r}; `lakestream topic list` shows those that are")
    if not names:
        fail(f"group {group!r} has committed nothing yet: name the topics with --topic")
    return [(name, index) for name in names for index in range(counts[name])]


def _check_empty(admin: AdminClient, group: str, *, known: bool) -> None:
    """A group that never was has no members: its first offsets may be set before its first member comes."""
    members = described(admin, group).members if known else ()
    if members:
        clients = ", ".join(sorted({member.client_id for member in members}))
        fail(
            f"group {group!r} has {len(members)} live member{'' if len(members) == 1 else 's'} ({clients}), who would "
            "commit over it: stop them first, or wait until their session has timed out"
        )


def _snapshot_ends(tables: RestTables, partitions: Iterable[Partition], text: str, *, every: bool) -> Positions:
    """Where that snapshot ends, for the topics whose table has it. A partition that came later begins at 0."""
    by_topic: dict[str, list[Partition]] = defaultdict(list)
    for part in partitions:
        by_topic[part[0]].append(part)
    wanted: Positions = {}
    missing = []
    for topic, parts in by_topic.items():
        try:
            table = tables.of_topic(topic)
        except CatalogError as error:
            fail(str(error))
        snapshot = None if table is None else table.find(text)
        if snapshot is None or snapshot.vector is None:
            missing.append(topic)
            continue
        ends = dict(enumerate(snapshot.vector))
        wanted |= {part: ends.get(part[1], 0) for part in parts}
    if missing and (every or not wanted):
        fail(
            f"no snapshot or tag {text!r} in the table of {', '.join(missing)}; `lakestream table snapshots` lists them"
        )
    for topic in missing:
        say(f"{topic}: its table has no snapshot {text}, so the group stays where it is there.")
    return wanted


def _consumed(tables: RestTables, positions: Positions) -> list[dict[str, Any]]:
    found = []
    for topic in sorted({topic for topic, _ in positions}):
        table = tables.of_topic(topic)
        at = {index: offset for (name, index), offset in positions.items() if name == topic}
        snapshot = None if table is None else table.consumed(at)
        if snapshot is not None:
            found.append({"topic": topic, "snapshot_id": snapshot.snapshot_id, "time": snapshot.time})
    return found


def _show_moves(name: str, before: Positions, after: Positions, *, dry_run: bool, json: bool) -> None:
    rows = [(*part, before.get(part), offset) for part, offset in sorted(after.items())]
    if json:
        keys = ("topic", "partition", "from", "to")
        moves = [dict(zip(keys, row, strict=True)) for row in rows]
        emit_json({"group": name, "moved": not dry_run, "partitions": moves})
        return
    show_table(["topic", "partition", "from", "to"], rows)
    if dry_run:
        out.print("Nothing was changed: this was a dry run.")
    else:
        out.print(f"Group [bold]{name}[/] goes on from there.")


def _member(member: Any) -> dict[str, Any]:
    parts = member.assignment.topic_partitions if member.assignment else []
    return {
        "member": member.member_id,
        "client": member.client_id,
        "host": member.host,
        "partitions": sorted((part.topic, part.partition) for part in parts),
    }


def _listed(partitions: Iterable[Partition]) -> str:
    by_topic: Mapping[str, list[str]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(str(index))
    return "; ".join(f"{topic}: {' '.join(indices)}" for topic, indices in by_topic.items())
