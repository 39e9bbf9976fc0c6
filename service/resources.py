"""Where the Lua scripts and the SQL files are: beside the code in an installed wheel, at the root of a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


class ResourceMissing(RuntimeError):
    """This installation lacks files that belong to it: install the wheel again."""


def lua_folder(package: Path = _PACKAGE) -> Path:
    """The folder of reserve.lua and the other scripts."""
    return _folder(package, "lua", package.parent / "scripts" / "lua")


def sql_folder(package: Path = _PACKAGE) -> Path:
    """The folder of the migrations and of schema.sql."""
    return _folder(package, "sql", package.parent / "sql")


def _folder(package: Path, name: str, in_checkout: Path) -> Path:
    installed = package / "_resources" / name
    for folder in (installed, in_checkout):
        if folder.is_dir():
            return folder
    raise ResourceMissing(f"neither {installed} nor {in_checkout} is there: install the wheel again")
