"""`python -m lakestream.cli`: how `up` starts its children."""

from lakestream.cli import main

main()
