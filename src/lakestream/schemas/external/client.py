"""The REST API of somebody's schema registry, as far as it is read. Calls block: they are made in threads of their own,
few, so that a registry which does not answer holds up nobody else.

What it says is not trusted: an answer has a most size, takes a most time, and has to have the form that it should.
"""

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec
import requests

from lakestream.errors import InvalidSetting, RegistryUnavailable
from lakestream.schemas.settings import SchemaSettings

_THREADS: Final = 4
_ANSWER_MOST_BYTES: Final = 8 * 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024
_NOT_FOUND: Final = 404
_OK: Final = 200
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class RegistryClient:
    """Raises `InvalidSetting` for settings that cannot be."""

    def __init__(self, settings: SchemaSettings) -> None:
        parts = urlsplit(settings.registry_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidSetting("schemas.registry_url has to be the http:// or https:// address of a schema registry")
        if parts.username is not None or parts.password is not None:
            raise InvalidSetting(
                "schemas.registry_url may not hold a password: use schemas.registry_user and schemas.registry_password"
            )
        if settings.registry_token and settings.registry_user:
            raise InvalidSetting("schemas.registry_token and schemas.registry_user exclude each other: choose one")
        self.place = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        """How people know it: no secret is in it."""
        self._timeout_s = settings.timeout_ms / 1000
        self._session = requests.Session()
        # Neither a .netrc nor a proxy of this machine's gets in between unasked.
        self._session.trust_env = False
        self._session.headers["Accept"] = _ACCEPT
        if settings.registry_token:
            self._session.headers["Authorization"] = f"Bearer {settings.registry_token}"
        elif settings.registry_user:
            self._session.auth = (settings.registry_user, settings.registry_password)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="schema-registry")

    async def get(self, *path: str, **query: str) -> Any:
        """The JSON there; None: it is not found. Raises `RegistryUnavailable`."""
        url = "/".join((self.place, *(quote(part, safe="") for part in path)))
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s * 2):
                return await loop.run_in_executor(self._threads, partial(self._ask, url, query))
        except TimeoutError as error:
            raise self._unavailable("did not answer in time") from error

    def close(self) -> None:
        self._session.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, url: str, query: Mapping[str, str]) -> Any:
        deadline_s = time.monotonic() + self._timeout_s
        try:
            with self._session.get(
                url, params=query, timeout=self._timeout_s, stream=True, allow_redirects=False
            ) as answer:
                if answer.status_code == _NOT_FOUND:
                    return None
                if answer.status_code != _OK:
                    raise self._unavailable(f"answered {answer.status_code}")
                body = bytearray()
                for piece in answer.iter_content(_PIECE_BYTES):
                    body += piece
                    if len(body) > _ANSWER_MOST_BYTES or time.monotonic() > deadline_s:
                        raise self._unavailable("answers too much, or too slowly")
                return msgspec.json.decode(body)
        except requests.RequestException as error:
            # Its own words may hold what was sent.
            raise self._unavailable(f"cannot be reached ({type(error).__name__})") from None
        except msgspec.DecodeError as error:
            raise self._unavailable("does not answer in JSON") from error

    def _unavailable(self, told: str) -> RegistryUnavailable:
        return RegistryUnavailable(f"the schema registry {self.place} {told}")
