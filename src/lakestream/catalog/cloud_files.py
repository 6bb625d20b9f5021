"""Metadata files of tables in Google's and Azure's stores, as PyIceberg reads and writes files.

PyIceberg's own way to these stores knows other addresses (`abfss://`) and takes other settings than the rest of us. The
files are small: each is one request, with the environment that the bucket is opened with. Blocking.
"""

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import obstore
from obstore.exceptions import BaseError
from obstore.store import from_url
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream

from lakestream.objects.cloud.failures import words

SCHEMES: Final = ("gs://", "az://")


def is_cloud(location: str) -> bool:
    return location.startswith(SCHEMES)


def delete(location: str) -> None:
    store, key = _place(location)
    _asked(location, lambda: obstore.delete(store, key))


class CloudInput(InputFile):
    def __len__(self) -> int:
        store, key = _place(self.location)
        return int(_asked(self.location, lambda: obstore.head(store, key))["size"])

    def exists(self) -> bool:
        try:
            len(self)
        except FileNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:
        store, key = _place(self.location)
        return io.BytesIO(_asked(self.location, lambda: bytes(obstore.get(store, key).bytes())))


class CloudOutput(OutputFile):
    def __len__(self) -> int:
        return len(self.to_input_file())

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return CloudInput(self.location)

    def create(self, overwrite: bool = False) -> OutputStream:
        store, key = _place(self.location)
        mode = "overwrite" if overwrite else "create"
        return WholeFile(
            lambda data: _asked(self.location, lambda: obstore.put(store, key, data, mode=mode, use_multipart=False))  # type: ignore[arg-type]
        )


class WholeFile(io.BytesIO):
    """Handed over when it is closed."""

    def __init__(self, done: Callable[[bytes], object]) -> None:
        super().__init__()
        self._done = done

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._done(data)


def _place(location: str) -> tuple[Any, str]:
    scheme, _, path = location.partition("://")
    bucket, _, key = path.partition("/")
    return _store(f"{scheme}://{bucket}"), key


@lru_cache(maxsize=8)
def _store(url: str) -> Any:
    # Plain HTTP is only ever used if the configured endpoint says so.
    return from_url(url, client_options={"allow_http": True})


def _asked(location: str, request: Callable[[], Any]) -> Any:
    """In the errors that files have."""
    try:
        return request()
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{location} does not exist") from error
    except BaseError as error:
        raise OSError(f"{location}: {words(error)}") from error
