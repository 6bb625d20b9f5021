"""Tables and functions of the PostgreSQL store: the SQL half, kept in a schema of its own.

A shard is locked through its row in `shard` before anything of it is read: a statement's snapshot is older than the
locks that it waits for, so the work is done by later statements of the same function, whose snapshots are newer
(functions are VOLATILE, isolation is READ COMMITTED). One call of a function is one SQL transaction and one round trip.

Versions come from a sequence, drawn under the lock: they grow for each key, also after a delete, and none is given
twice, also after a crash. Names are bytes, so that their order is that of the bytes and any text can be one.
"""

from typing import Final

import asyncpg

from lakestream.errors import RequestError

SCHEMA_VERSION: Final = 1

_TABLES: Final = """
CREATE TABLE {schema}.format (version int NOT NULL);
CREATE TABLE {schema}.shard (name bytea PRIMARY KEY)
  WITH (fillfactor = 70, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE {schema}.kv (shard bytea, key bytea, version bigint NOT NULL, value bytea NOT NULL,
  PRIMARY KEY (shard, key))
  WITH (fillfactor = 70, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_threshold = 10000, autovacuum_vacuum_cost_delay = 1);
CREATE TABLE {schema}.lease (shard bytea, key bytea, token bigint NOT NULL, expires timestamptz NOT NULL,
  PRIMARY KEY (shard, key))
  WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02);
CREATE SEQUENCE {schema}.version;
"""

_LOCK: Final = """
CREATE FUNCTION {schema}.lock_shards(p_shards bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  wanted int;
  locked int;
BEGIN
  SELECT count(DISTINCT name) INTO wanted FROM unnest(p_shards) AS name;
  LOOP
    -- In order: two calls that share shards then wait for each other, never crosswise.
    PERFORM 1 FROM {schema}.shard WHERE name = ANY(p_shards) ORDER BY name FOR UPDATE;
    GET DIAGNOSTICS locked = ROW_COUNT;
    EXIT WHEN locked = wanted;
    INSERT INTO {schema}.shard SELECT DISTINCT name FROM unnest(p_shards) AS name ORDER BY name ON CONFLICT DO NOTHING;
  END LOOP;
END $$;
"""

_TRANSACT: Final = """
CREATE FUNCTION {schema}.transact(
  p_shards bytea[],
  p_check_tx int[], p_check_shard bytea[], p_check_key bytea[], p_check_version bigint[],
  p_delete_tx int[], p_delete_shard bytea[], p_delete_key bytea[],
  p_range_tx int[], p_range_shard bytea[], p_range_start bytea[], p_range_end bytea[],
  p_put_tx int[], p_put_shard bytea[], p_put_key bytea[], p_put_value bytea[]
) RETURNS TABLE (o_tx int, o_applied bigint, o_key bytea, o_version bigint, o_value bytea) LANGUAGE plpgsql AS $$
DECLARE
  refused int[];
  versions bigint[];
BEGIN
  PERFORM {schema}.lock_shards(p_shards);
  SELECT coalesce(array_agg(DISTINCT c.tx), '{{}}') INTO refused
    FROM unnest(p_check_tx, p_check_shard, p_check_key, p_check_version) AS c (tx, shard, key, version)
    LEFT JOIN {schema}.kv ON kv.shard = c.shard AND kv.key = c.key
    WHERE coalesce(kv.version, 0) <> c.version;
  IF cardinality(refused) > 0 THEN
    RETURN QUERY SELECT c.tx, NULL::bigint, c.key, kv.version, kv.value
      FROM unnest(p_check_tx, p_check_shard, p_check_key, p_check_version) AS c (tx, shard, key, version)
      LEFT JOIN {schema}.kv ON kv.shard = c.shard AND kv.key = c.key
      WHERE coalesce(kv.version, 0) <> c.version;
  END IF;
  SELECT array_agg(CASE WHEN n = ANY(refused) THEN NULL ELSE nextval('{schema}.version') END ORDER BY n) INTO versions
    FROM generate_series(1, cardinality(p_shards)) AS n;
  IF cardinality(p_range_tx) > 0 THEN
    DELETE FROM {schema}.kv
      USING unnest(p_range_tx, p_range_shard, p_range_start, p_range_end) AS r (tx, shard, first, past)
      WHERE kv.shard = r.shard AND kv.key >= r.first AND kv.key < r.past AND versions[r.tx] IS NOT NULL;
  END IF;
  IF cardinality(p_delete_tx) > 0 THEN
    DELETE FROM {schema}.kv USING unnest(p_delete_tx, p_delete_shard, p_delete_key) AS d (tx, shard, key)
      WHERE kv.shard = d.shard AND kv.key = d.key AND versions[d.tx] IS NOT NULL;
  END IF;
  IF cardinality(p_put_tx) > 0 THEN
    INSERT INTO {schema}.kv (shard, key, version, value)
      SELECT p.shard, p.key, versions[p.tx], p.value
      FROM unnest(p_put_tx, p_put_shard, p_put_key, p_put_value) AS p (tx, shard, key, value)
      WHERE versions[p.tx] IS NOT NULL
      ON CONFLICT ON CONSTRAINT kv_pkey DO UPDATE SET version = excluded.version, value = excluded.value;
  END IF;
  RETURN QUERY SELECT n, versions[n], NULL::bytea, NULL::bigint, NULL::bytea
    FROM generate_series(1, cardinality(p_shards)) AS n WHERE versions[n] IS NOT NULL;
END $$;
"""

_LEASES: Final = """
CREATE FUNCTION {schema}.acquire_lease(p_shard bytea, p_key bytea, p_holder bytea, p_ttl_ms bigint, p_damaged bigint)
RETURNS TABLE (o_holder bytea, o_token bigint, o_remaining_ms bigint, o_is_new boolean) LANGUAGE plpgsql AS $$
DECLARE
  present bytea;
  granted bigint;
  remaining_ms bigint;
  is_new boolean := false;
BEGIN
  PERFORM {schema}.lock_shards(ARRAY[p_shard]);
  -- Not now(): that is when the transaction began, before it waited for the lock.
  SELECT kv.value, lease.token, ceil(extract(epoch FROM lease.expires - clock_timestamp()) * 1000)
    INTO present, granted, remaining_ms
    FROM {schema}.lease JOIN {schema}.kv ON kv.shard = lease.shard AND kv.key = lease.key AND kv.version = lease.token
    WHERE lease.shard = p_shard AND lease.key = p_key;
  IF NOT FOUND OR remaining_ms <= 0 OR granted = p_damaged THEN
    granted := nextval('{schema}.version');
    is_new := true;
    INSERT INTO {schema}.kv (shard, key, version, value) VALUES (p_shard, p_key, granted, p_holder)
      ON CONFLICT ON CONSTRAINT kv_pkey DO UPDATE SET version = excluded.version, value = excluded.value;
  ELSIF present <> p_holder THEN
    RETURN QUERY SELECT present, granted, remaining_ms, false;
    RETURN;
  END IF;
  INSERT INTO {schema}.lease (shard, key, token, expires)
    VALUES (p_shard, p_key, granted, clock_timestamp() + p_ttl_ms * interval '1 millisecond')
    ON CONFLICT ON CONSTRAINT lease_pkey DO UPDATE SET token = excluded.token, expires = excluded.expires;
  RETURN QUERY SELECT p_holder, granted, p_ttl_ms, is_new;
END $$;
CREATE FUNCTION {schema}.release_lease(p_shard bytea, p_key bytea, p_token bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM {schema}.lock_shards(ARRAY[p_shard]);
  DELETE FROM {schema}.lease WHERE lease.shard = p_shard AND lease.key = p_key AND lease.token = p_token;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  DELETE FROM {schema}.kv WHERE kv.shard = p_shard AND kv.key = p_key AND kv.version = p_token;
  RETURN FOUND;
END $$;
"""

# Rows of shards that are empty by now, such as those of deleted topics. Whoever waits for one makes it anew.
_SWEEP: Final = """
DELETE FROM {schema}.shard WHERE name IN (
  SELECT name FROM {schema}.shard WHERE NOT EXISTS (SELECT 1 FROM {schema}.kv WHERE kv.shard = shard.name)
  ORDER BY name FOR UPDATE SKIP LOCKED);
DELETE FROM {schema}.lease WHERE NOT EXISTS (
  SELECT 1 FROM {schema}.kv WHERE kv.shard = lease.shard AND kv.key = lease.key) AND expires < now() - interval '1 day';
"""


async def prepare(connection: asyncpg.Connection, schema: str, place: str) -> None:
    """Creates what is missing; refuses a schema that is another's or of another version."""
    async with connection.transaction(isolation="read_committed"):
        # Only one process at a time: CREATE … IF NOT EXISTS itself is no protection against another.
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"lakestream/{schema}")
        found = await connection.fetchval("SELECT to_regnamespace($1)::text", f'"{schema}"')
        tables = await connection.fetchval(
            "SELECT array_agg(tablename::text) FROM pg_tables WHERE schemaname = $1", schema
        )
        if not tables:
            if found is None:
                await connection.execute(f"CREATE SCHEMA {schema}")
            for text in (_TABLES, _LOCK, _TRANSACT, _LEASES):
                await connection.execute(text.format(schema=schema))
            await connection.execute(f"INSERT INTO {schema}.format VALUES ($1)", SCHEMA_VERSION)
            return
        version = await connection.fetchval(f"SELECT version FROM {schema}.format") if "format" in tables else None
        if version is None:
            raise RequestError(f"{place} is not a metadata store: it has tables of its own; name another with ?schema=")
        if version != SCHEMA_VERSION:
            raise RequestError(
                f"{place} is in format {version}, this version of lakestream reads {SCHEMA_VERSION}: "
                f"use the version that wrote it"
            )
    await connection.execute(_SWEEP.format(schema=schema))
