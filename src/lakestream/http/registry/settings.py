"""`/config` and `/mode`: of all subjects, of a context (`:.context:`), of one subject."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakestream.errors import RegistryProblem, RegistryRefused
from lakestream.http.identity import principal_of
from lakestream.http.registry.answers import answer, config_fields
from lakestream.http.registry.requests import body_of, flag, subject_of
from lakestream.schemas.registry.model import Level, Mode, SubjectConfig
from lakestream.schemas.registry.registry import SchemaRegistry

_NOT_SERVED: Final = (
    *("alias", "compatibilityGroup", "compatibilityPolicy", "validateFields", "validateRules", "validateNames"),
    *("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet"),
)


class SentMode(msgspec.Struct, frozen=True):
    mode: str


class SettingRoutes:
    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def routes(self) -> list[Route]:
        found = []
        for path in ("", "/{subject:path}"):
            found += [
                Route(f"/config{path}", self.load_config, methods=["GET"]),
                Route(f"/config{path}", self.set_config, methods=["PUT"]),
                Route(f"/config{path}", self.delete_config, methods=["DELETE"]),
                Route(f"/mode{path}", self.load_mode, methods=["GET"]),
                Route(f"/mode{path}", self.set_mode, methods=["PUT"]),
                Route(f"/mode{path}", self.delete_mode, methods=["DELETE"]),
            ]
        return found

    async def load_config(self, request: Request) -> Response:
        inherited = flag(request, "defaultToGlobal")
        found = await self._registry.config(principal_of(request), subject_of(request), inherited=inherited)
        return answer(config_fields(found, "compatibilityLevel"))

    async def set_config(self, request: Request) -> Response:
        wanted = _config(await body_of(request, dict[str, Any]))
        await self._registry.set_config(principal_of(request), subject_of(request), wanted)
        return answer(config_fields(wanted, "compatibility"))

    async def delete_config(self, request: Request) -> Response:
        found = await self._registry.delete_config(principal_of(request), subject_of(request))
        return answer(config_fields(found, "compatibilityLevel"))

    async def load_mode(self, request: Request) -> Response:
        inherited = flag(request, "defaultToGlobal")
        found = await self._registry.mode(principal_of(request), subject_of(request), inherited=inherited)
        return answer({"mode": found})

    async def set_mode(self, request: Request) -> Response:
        sent = await body_of(request, SentMode)
        try:
            wanted = Mode(sent.mode.upper())
        except ValueError as error:
            names = ", ".join(Mode)
            raise RegistryRefused(RegistryProblem.INVALID_MODE, f"Invalid mode. Valid values are {names}") from error
        force = flag(request, "force")
        await self._registry.set_mode(principal_of(request), subject_of(request), wanted, force=force)
        return answer({"mode": wanted})

    async def delete_mode(self, request: Request) -> Response:
        return answer({"mode": await self._registry.delete_mode(principal_of(request), subject_of(request))})


def _config(sent: Mapping[str, Any]) -> SubjectConfig:
    """Raises `RegistryRefused`, `HTTPException`."""
    refused = [name for name in _NOT_SERVED if sent.get(name) is not None]
    if refused:
        raise HTTPException(422, f"{', '.join(refused)}: this registry has no such setting; leave it out")
    level, normalize = sent.get("compatibility", sent.get("compatibilityLevel")), sent.get("normalize")
    try:
        chosen = None if level is None else Level(str(level).upper())
    except ValueError as error:
        raise _invalid_level() from error
    if normalize is not None and not isinstance(normalize, bool):
        raise HTTPException(422, "normalize is true or false")
    if chosen is None and normalize is None:
        raise _invalid_level()
    return SubjectConfig(chosen, normalize)


def _invalid_level() -> RegistryRefused:
    names = ", ".join(level.lower() for level in Level)
    return RegistryRefused(RegistryProblem.INVALID_LEVEL, f"Invalid compatibility level. Valid values are {names}")
