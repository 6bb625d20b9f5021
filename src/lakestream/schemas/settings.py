"""Which schema registry values are told by. Text and numbers only."""

import msgspec


class SchemaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`registry_url` empty: our own registry, in the metadata store. Whoever has another one may use that instead; user
    and password, or a token, are shown to it and to nobody else."""

    registry_url: str = ""
    """http://… or https://… of a registry with Confluent's REST API."""
    registry_user: str = ""
    registry_password: str = ""
    registry_token: str = ""
    """A bearer token, instead of user and password."""
    timeout_ms: int = 3_000
    """For each answer of that registry."""
    latest_ms: int = 5_000
    """How old the latest version of a subject may be."""
