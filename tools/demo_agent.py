"""`make demo-agent`: a lakestream of its own in a temporary folder, and `lakestream demo-agent` beside it.

No Java is needed: what the agent asks for is in the log, and the door commits what it has to.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

HOST = "127.0.0.1"
START_S = 60.0
STOP_S = 20.0
LAKESTREAM = [sys.executable, "-m", "lakestream.cli"]


def main() -> int:
    kafka, http = _free_ports(2)
    with tempfile.TemporaryDirectory(prefix="lakestream-demo-") as folder, (Path(folder) / "up.log").open("wb") as log:
        variables = {"DATA": f"{folder}/data", "KAFKA_PORT": str(kafka), "HTTP_PORT": str(http), "BROKERS": "1"}
        up = subprocess.Popen(
            [*LAKESTREAM, "up", "--no-pipeline"],
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            door = f"http://{HOST}:{http}"
            if not _answers(up, f"{door}/health"):
                print(Path(log.name).read_text(), file=sys.stderr)
                return 1
            command = [*LAKESTREAM, "demo-agent", "-b", f"{HOST}:{kafka}", "--door", door]
            return subprocess.run([*command, *sys.argv[1:]], check=False).returncode
        finally:
            up.terminate()
            try:
                up.wait(STOP_S)
            except subprocess.TimeoutExpired:
                up.kill()
                up.wait()


def _answers(process: subprocess.Popen[bytes], url: str) -> bool:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return True
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    return False


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


if __name__ == "__main__":
    sys.exit(main())
