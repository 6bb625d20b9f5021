"""Java programs as processes: those of jars, and those of the tests in `support/java`, compiled by a compiler that any
Java runs."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.worlds.processes import Running

SOURCES = Path(__file__).resolve().parents[1] / "java"
RELEASE = "17"
LOGGING = """
status = error
rootLogger.level = warn
rootLogger.appenderRef.output.ref = output
appender.output.type = Console
appender.output.name = output
appender.output.layout.type = PatternLayout
appender.output.layout.pattern = %d{HH:mm:ss,SSS} %p %c{1} %m%n
"""
_CACHE = Path(__file__).parents[3] / ".cache" / "ecosystem"


def ecosystem_jars() -> Path:
    """The folder of what runs on top of Kafka: LAKESTREAM_ECOSYSTEM_JARS, else in the repository's cache."""
    return Path(os.environ.get("LAKESTREAM_ECOSYSTEM_JARS", _CACHE))


def spark_kafka_jars() -> list[Path]:
    """Of Spark's own source and sink for Kafka, or none."""
    folder = ecosystem_jars()
    names = ("spark-sql-kafka-*.jar", "spark-token-provider-kafka-*.jar", "kafka-clients-*.jar", "commons-pool2-*.jar")
    return [jar for name in names for jar in folder.glob(name)]


def class_path(*places: Path | str) -> str:
    """Of jars and folders; a folder of jars stands for all of them."""
    return ":".join(str(path) for place in map(Path, places) for path in (sorted(place.glob("*.jar")) or [place]))


class JavaPrograms:
    """Starts programs on one class path, each with a log of its own in a folder."""

    def __init__(self, java: str, libraries: str, folder: Path) -> None:
        self._java, self._libraries, self._folder = java, libraries, folder
        self.started: list[Running] = []
        self._logging = folder / "log4j2.properties"
        self._logging.write_text(LOGGING)

    def compile(self, source: str) -> None:
        """A program of ours, which then is on the class path."""
        [compiler] = ecosystem_jars().glob("ecj-*.jar")
        classes = self._folder / "classes"
        command = [self._java, "-Xmx256m", "-jar", str(compiler), "--release", RELEASE, "-nowarn", "-proc:none"]
        command += ["-cp", self._libraries, "-d", str(classes), str(SOURCES / source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        self._libraries = f"{classes}:{self._libraries}"

    def start(self, main: str, *arguments: str, options: Sequence[str] = ()) -> Running:
        log = self._folder / f"{main.rpartition('.')[2]}-{len(self.started)}.log"
        command = [self._java, "-Xmx384m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={self._logging}"]
        command += [*options, "-cp", self._libraries, main, *arguments]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, cwd=self._folder)
        self.started.append(Running(process, log))
        return self.started[-1]

    def kill_all(self) -> None:
        for running in self.started:
            if running.process.poll() is None:
                running.kill()
