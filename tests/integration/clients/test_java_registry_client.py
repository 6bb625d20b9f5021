"""Confluent's Java client of schema registries, as Flink ships it, against ours."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.servers.apicurio import registry_jars
from support.worlds.processes import HOST, ProcessWorld, Running, free_ports

pytestmark = [pytest.mark.slow, pytest.mark.java]

Start = Callable[..., Running]

PACKAGE = "org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry"
CLIENT = """
import java.util.List;
import PACKAGE.avro.AvroSchema;
import PACKAGE.client.CachedSchemaRegistryClient;
import PACKAGE.client.rest.exceptions.RestClientException;

public class Client {
    public static void main(String[] arguments) throws Exception {
        var client = new CachedSchemaRegistryClient(arguments[0], 100);
        var first = new AvroSchema(arguments[1]);
        int id = client.register("orders-value", first);
        System.out.println("registered " + id + " again " + client.register("orders-value", first));
        var fresh = new CachedSchemaRegistryClient(List.of(arguments[0]), 100);
        System.out.println("by id " + fresh.getSchemaById(id).canonicalString().equals(first.canonicalString()));
        System.out.println("latest " + fresh.getLatestSchemaMetadata("orders-value").getVersion());
        System.out.println("id of " + fresh.getId("orders-value", first));
        var second = new AvroSchema(arguments[2]);
        System.out.println("compatible " + fresh.testCompatibility("orders-value", second));
        try {
            fresh.register("orders-value", second);
        } catch (RestClientException refused) {
            System.out.println("refused " + refused.getStatus() + " " + refused.getErrorCode());
        }
        System.out.println("level " + fresh.updateCompatibility("orders-value", "NONE"));
        System.out.println("second " + (fresh.register("orders-value", second) > id));
        System.out.println("versions " + fresh.getAllVersions("orders-value"));
        System.out.println("subjects " + fresh.getAllSubjects());
        System.out.println("deleted " + fresh.deleteSubject("orders-value"));
    }
}
"""


def test_it_registers_looks_up_checks_and_deletes(start: Start, java: str, kafka_libs: str, tmp_path: Path) -> None:
    jars = sorted(registry_jars().glob("flink-sql-avro-confluent-registry-*.jar"))
    if not jars:
        pytest.skip("Confluent's Java client (LAKESTREAM_REGISTRY_JARS) is missing: `make test-all` fetches it")
    world = ProcessWorld(tmp_path / "data", {}, start, [free_ports()])
    world.start_http()
    source = tmp_path / "Client.java"
    source.write_text(CLIENT.replace("PACKAGE", PACKAGE))
    first = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    second = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
    command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars[0]}:{kafka_libs}/*", str(source)]
    command += [f"http://{HOST}:{world.http_port}/registry", json.dumps(first), json.dumps(second)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.split()[0].islower()] == [
        "registered 1 again 1",
        "by id true",
        "latest 1",
        "id of 1",
        "compatible false",
        "refused 409 409",
        "level NONE",
        "second true",
        "versions [1, 2]",
        "subjects [orders-value]",
        "deleted [1, 2]",
    ]
