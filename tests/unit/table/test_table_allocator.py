"""A broker decodes with an allocator that keeps pages, unless its user has chosen one."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import pyarrow as pa
from lakestream.table.allocator import keep_decoded_memory
print(keep_decoded_memory(), pa.default_memory_pool().backend_name)
"""


@pytest.mark.parametrize(
    ("chosen", "expected"), [({}, "True jemalloc"), ({"ARROW_DEFAULT_MEMORY_POOL": "system"}, "False system")]
)
def test_the_pool_is_jemalloc_unless_another_is_chosen(chosen: dict[str, str], expected: str) -> None:
    plain = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=plain | chosen, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected
