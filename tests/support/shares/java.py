"""Kafka's own share consumer, in processes of its own that say what they get and what was acknowledged."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = """
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ShareMember {
    public static void main(String[] arguments) throws Exception {
        String how = arguments[3];
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", arguments[0], "group.id", arguments[1],
            "share.acknowledgement.mode", how.equals("implicit") ? "implicit" : "explicit",
            "metadata.max.age.ms", "1000", "reconnect.backoff.max.ms", "500",
            "default.api.timeout.ms", "15000", "request.timeout.ms", "10000"));
        for (int each = 4; each < arguments.length; each++) {
            String[] pair = arguments[each].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        var bytes = new ByteArrayDeserializer();
        var stopping = new java.util.concurrent.atomic.AtomicBoolean();
        var polls = new HashMap<Long, Integer>();
        Thread reader = new Thread(() -> {
            try { while (System.in.read() >= 0) { } } catch (java.io.IOException gone) { }
            stopping.set(true);
        });
        reader.setDaemon(true);
        reader.start();
        try (var consumer = new KafkaShareConsumer<byte[], byte[]>(settings, bytes, bytes)) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> offsets.forEach((partition, of) -> {
                for (long offset : of) say((error == null ? "A " : "E ") + partition.partition() + " " + offset
                    + (error == null ? "" : " " + error.getClass().getSimpleName()));
            }));
            consumer.subscribe(List.of(arguments[2].split(",")));
            say("R");
            while (!stopping.get()) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    int count = record.deliveryCount().orElse((short) 0);
                    say("G " + record.partition() + " " + record.offset() + " " + count);
                    boolean odd = record.offset() % 2 == 1;
                    if (how.equals("accept")) consumer.acknowledge(record);
                    if (how.equals("release")) consumer.acknowledge(record, AcknowledgeType.RELEASE);
                    if (how.equals("reject-odd"))
                        consumer.acknowledge(record, odd ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
                    if (how.equals("hang")) { Thread.sleep(3_600_000); }
                    if (how.equals("renew")) {
                        boolean goesOn = polls.merge(record.offset(), 1, Integer::sum) <= 4;
                        consumer.acknowledge(record, goesOn ? AcknowledgeType.RENEW : AcknowledgeType.ACCEPT);
                        consumer.commitSync();
                        Thread.sleep(goesOn ? 800 : 0);
                    }
                }
                if (how.equals("accept")) consumer.commitSync();
            }
        }
        say("S");
    }

    static synchronized void say(String line) {
        System.out.println(System.nanoTime() + " " + line);
        System.out.flush();
    }
}
"""
WAIT_S = 40.0


@dataclass
class ShareMember:
    """`got`: partition, offset and delivery, in order; `acked`: what the broker has said it has stored."""

    process: "subprocess.Popen[str]"
    got: list[tuple[int, int, int]] = field(default_factory=list)
    acked: list[tuple[int, int]] = field(default_factory=list)
    got_at: list[tuple[float, int, int, int]] = field(default_factory=list)
    acked_at: list[tuple[float, int, int]] = field(default_factory=list)
    """The same with the time, by a clock that all processes of the machine have."""
    failed: list[tuple[int, int, str]] = field(default_factory=list)
    is_ready: bool = False

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            at, kind, *rest = line.split()
            at_s = int(at) / 1e9
            if kind == "R":
                self.is_ready = True
            elif kind == "G":
                self.got.append((int(rest[0]), int(rest[1]), int(rest[2])))
                self.got_at.append((at_s, *self.got[-1]))
            elif kind == "A":
                self.acked.append((int(rest[0]), int(rest[1])))
                self.acked_at.append((at_s, *self.acked[-1]))
            elif kind == "E":
                self.failed.append((int(rest[0]), int(rest[1]), rest[2]))

    def stop(self) -> None:
        """Closes the consumer, which gives back what it has."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def offsets(self) -> set[tuple[int, int]]:
        return {(partition, offset) for partition, offset, _ in self.got}


StartMember = Callable[..., ShareMember]


@contextmanager
def share_members(java: str, libraries: str, folder: Path) -> Iterator[StartMember]:
    """How is implicit, accept, release, reject-odd, hang or renew."""
    source, quiet = folder / "ShareMember.java", folder / "log4j2.properties"
    source.write_text(SOURCE)
    quiet.write_text("status = error\nrootLogger.level = error\n")
    javac = str(Path(java).with_name("javac"))
    subprocess.run([javac, "-cp", f"{libraries}/*", "-d", str(folder), str(source)], check=True, timeout=120)
    members: list[ShareMember] = []

    def start(
        bootstrap: str,
        group: str = "g",
        topic: str = "t",
        how: str = "implicit",
        settings: Mapping[str, str] | None = None,
    ) -> ShareMember:
        command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={quiet}"]
        command += ["-cp", f"{folder}:{libraries}/*", "ShareMember", bootstrap, group, topic, how]
        command += [f"{name}={value}" for name, value in (settings or {}).items()]
        with (folder / f"member-{len(members)}.log").open("w") as log:
            process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=log, text=True)
        members.append(ShareMember(process))
        threading.Thread(target=members[-1].listen, daemon=True).start()
        return members[-1]

    try:
        yield start
    finally:
        for each in members:
            each.kill()
            for pipe in (each.process.stdin, each.process.stdout):
                if pipe is not None:
                    pipe.close()


def until(holds: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.05)
