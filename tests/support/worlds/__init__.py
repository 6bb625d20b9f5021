"""Test worlds, one ladder. Take the lowest rung that can show what you test.

| rung | in | what is real |
|---|---|---|
| `MemoryWorld` | `memory` | the pipeline; store, bucket, catalog and clock are made up, and any operation may crash |
| `BrokerWorld` | `brokers` | brokers without doors, on backends of any kind |
| `LakeWorld` | `lake` | one broker and a pipeline without Spark, on a real catalog |
| `FileWorld` | `files` | a directory, brokers with their Kafka door, the HTTP door; all in this process |
| `ProcessWorld` | `processes` | `lakestream` processes, started and killed |

`directory` and `catalogs` put a `MemoryWorld` on real files; `fresh`, `topic`, `source` and `takeover` are scenes on
one of the rungs.
"""
