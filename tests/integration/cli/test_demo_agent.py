"""`make demo-agent`: what it starts, decides and cites."""

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "tools" / "demo_agent.py"


def test_an_agent_holds_the_order_that_stands_out_and_cites_why() -> None:
    command = [sys.executable, str(SCRIPT), "--history", "400", "--count", "4"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    said, *decisions = ended.stdout.splitlines()
    assert "400 orders of 40 customers" in said
    assert [line.split()[0] for line in decisions] == ["approve", "approve", "approve", "hold"]
    assert [line.split()[1] for line in decisions] == ["0:400", "0:401", "0:402", "0:403"]
    for line in decisions:
        assert re.search(r"orders before, usually \d+\.\d\d", line)
        assert len(re.findall(r"sha256:[0-9a-f]{12}", line)) == 2
        assert line.endswith("replayed)")
