"""`lakestream mcp`: the tools of a door's `/mcp` over standard input and output."""

import asyncio
from http.client import HTTPException
from typing import Annotated, Final
from urllib.request import urlopen

import typer
from mcp import Client
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

from lakestream.cli.console import fail

_TIMEOUT_S: Final = 30.0

app = typer.Typer(add_completion=False)


@app.command()
def mcp(
    door: Annotated[
        str, typer.Option("--door", metavar="URL", envvar="LAKESTREAM_DOOR", help="Where the HTTP door is.")
    ] = "http://127.0.0.1:8181",
) -> None:
    """Serve the tools for agents over standard input and output, as a client that starts its servers wants them."""
    base = door.rstrip("/")
    try:
        urlopen(f"{base}/health", timeout=_TIMEOUT_S).close()
    except (OSError, ValueError, HTTPException) as error:
        fail(f"no HTTP door answers at {door}: {error}. Start one with `lakestream up`, or name another with --door")
    asyncio.run(_serve(f"{base}/mcp"))


async def _serve(url: str) -> None:
    """What comes in goes to the door as it is, and back."""
    async with Client(url) as there:

        async def list_tools(_context: object, params: PaginatedRequestParams | None) -> ListToolsResult:
            return await there.list_tools(cursor=None if params is None else params.cursor)

        async def call_tool(_context: object, params: CallToolRequestParams) -> CallToolResult:
            return await there.call_tool(params.name, params.arguments)

        instructions = there.instructions
        server = Server("lakestream", instructions=instructions, on_list_tools=list_tools, on_call_tool=call_tool)
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
