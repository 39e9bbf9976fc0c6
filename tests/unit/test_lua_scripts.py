"""What can be read off the scripts: headers, declared keys, named replies, and how the loader puts them together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from redis.crc import key_slot

from service.adapters.redis.keys import DATA, META, keys
from service.adapters.redis.scripts import NAMES, load_script, load_scripts
from service.resources import ResourceMissing, lua_folder, sql_folder
from tests.fixtures.stock import new_slot

LUA = lua_folder()
CALL = re.compile(r"redis\.call\('(\w+)'(?:, ([^,)]+))?")
KEYLESS = {"INFO", "TIME"}
DECLARATION = re.compile(r"^local ([A-Z, ]+) = unpack\(KEYS\)$", re.MULTILINE)
INCLUDES = sorted((LUA / "include").glob("*.lua"))


def header(path: Path) -> str:
    return "\n".join(line for line in path.read_text().split("\n\n")[0].splitlines() if line.startswith("--"))


def test_every_script_is_loaded() -> None:
    assert {path.stem for path in LUA.glob("*.lua")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_header_names_the_script_its_keys_arguments_and_replies(name: str) -> None:
    lines = header(LUA / f"{name}.lua").splitlines()
    assert lines[0].startswith(f"-- {name}.lua: ")
    for part in ("-- KEYS: meta, ", "-- ARGV: epoch", "-- Replies:"):
        assert sum(line.startswith(part) for line in lines) == 1, part


@pytest.mark.parametrize("path", INCLUDES, ids=lambda path: path.stem)
def test_a_header_names_the_include(path: Path) -> None:
    assert header(path).startswith(f"-- include/{path.name}: ")


@pytest.mark.parametrize("name", NAMES)
def test_a_script_touches_declared_keys_only(name: str) -> None:
    script = load_script(name, LUA)
    declared = DECLARATION.search(script.source)
    assert declared is not None
    names = [part.strip() for part in declared[1].split(",")]
    assert [part.lower() for part in names] == list(script.key_names)
    calls = CALL.findall(script.source)
    assert len(calls) == script.source.count("redis.call(")
    assert [call for call in calls if call[0] not in KEYLESS and call[1] not in names] == []
    assert script.source.count("KEYS[") == 0


@pytest.mark.parametrize("name", NAMES)
def test_every_key_of_a_script_is_one_that_unlink_removes(name: str) -> None:
    assert set(load_script(name, LUA).key_names) <= {META, *DATA}


@pytest.mark.parametrize("name", NAMES)
def test_replies_begin_with_a_word_that_the_header_names(name: str) -> None:
    script = load_script(name, LUA)
    named = set(re.findall(r"\{'(\w+)'", header(LUA / f"{name}.lua")))
    code = "\n".join(line for line in script.source.splitlines() if not line.startswith("--"))
    given = set(re.findall(r"(?:return|reply =) \{'(\w+)'", code))
    unused = {"lost"} if name == "load" else set()  # it has its own word for another server
    assert given - unused == named


@pytest.mark.parametrize("name", NAMES)
def test_all_keys_are_in_one_hash_slot_and_carry_the_epoch(name: str) -> None:
    slot = new_slot(epoch=7)
    names = keys(slot, load_script(name, LUA).key_names)
    assert len({key_slot(key.encode()) for key in names}) == 1
    assert all(key.startswith(f"dg:{{{slot.sale_id}:0}}:7:") for key in names)


def test_includes_are_put_in_and_none_is_left() -> None:
    scripts = load_scripts()
    assert "--#include" not in scripts.reserve.source
    assert "local function lost()" in scripts.reserve.source
    assert len({scripts.peek.sha, scripts.reserve.sha, scripts.count.sha}) == 3


def test_a_script_without_a_header_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.lua").write_text("return {'ok'}")
    with pytest.raises(ValueError, match="no header line"):
        load_script("odd", tmp_path)


def test_resources_are_found_in_a_checkout_and_in_a_wheel(tmp_path: Path) -> None:
    package = tmp_path / "service"
    (tmp_path / "scripts" / "lua").mkdir(parents=True)
    (tmp_path / "sql").mkdir()
    assert lua_folder(package) == tmp_path / "scripts" / "lua"
    assert sql_folder(package) == tmp_path / "sql"
    (package / "_resources" / "lua").mkdir(parents=True)
    assert lua_folder(package) == package / "_resources" / "lua"
    with pytest.raises(ResourceMissing, match="install the wheel again"):
        lua_folder(tmp_path / "elsewhere" / "service")
