"""DROPGATE_REDIS_URL: the forms that it takes, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from service.adapters.redis.server import url_of
from service.adapters.redis.url import RedisUrl, Server, UnixSocket, UrlRefused, Watched, parse
from service.bootstrap.adapters import open_adapters
from service.domain.errors import SettingRefused
from service.settings import Settings

ONE, TWO = Server(host="one.example", port=26379), Server(host="two.example", port=26380)

FORMS = {
    "redis://": RedisUrl(place=Server(host="localhost", port=6379)),
    "redis://redis.example": RedisUrl(place=Server(host="redis.example", port=6379)),
    "redis://redis.example:6380/2": RedisUrl(place=Server(host="redis.example", port=6380), db=2),
    "redis://redis.example?db=3": RedisUrl(place=Server(host="redis.example", port=6379), db=3),
    "redis://:sec%40ret@[::1]:6380/": RedisUrl(place=Server(host="::1", port=6380), password="sec@ret"),
    "redis://[::1]": RedisUrl(place=Server(host="::1", port=6379)),
    "REDISS://anna:a:b@redis.example": RedisUrl(
        place=Server(host="redis.example", port=6379), tls=True, username="anna", password="a:b"
    ),
    "unix:///run/redis%20one.sock?db=1": RedisUrl(place=UnixSocket(path="/run/redis one.sock"), db=1),
    "unix://anna:secret@/run/r@.sock": RedisUrl(
        place=UnixSocket(path="/run/r@.sock"), username="anna", password="secret"
    ),
    "redis+sentinel://one.example/shoes": RedisUrl(place=Watched(service="shoes", sentinels=(ONE,))),
    "redis+sentinel://anna:secret@one.example,two.example:26380/shoes/4": RedisUrl(
        place=Watched(service="shoes", sentinels=(ONE, TWO)), db=4, username="anna", password="secret"
    ),
    "rediss+sentinel://one.example:26379,[::1]:26379/my%20shoes": RedisUrl(
        place=Watched(service="my shoes", sentinels=(ONE, Server(host="::1", port=26379))), tls=True
    ),
}


@pytest.mark.parametrize("url", FORMS)
def test_a_url_says_where_and_as_whom(url: str) -> None:
    assert parse(url) == FORMS[url]


def test_the_embedded_servers_own_url_is_one(tmp_path: Path) -> None:
    folder = tmp_path / "50 % #1?"
    assert parse(url_of(folder)).place == UnixSocket(path=str(folder / "redis.sock"))


REFUSED = {
    "localhost:6379": "it must be one of redis://host:port/db, unix:///path, or redis.sentinel://",
    "redis-sentinel://one.example/shoes": "it must be one of",
    "redis://one.example,two.example": r"several hosts are Sentinels': redis\+sentinel://",
    "redis://redis.example:port": "'port' is no port",
    "redis://redis.example:70000": "'70000' is no port",
    "redis://redis.example:": "'redis.example:' is no host:port",
    "redis://::1": "'::1' is no host:port",
    "redis://redis.example/shoes": "'shoes' is no database",
    "redis://anna@redis.example": "a user and no password",
    "redis+sentinel://one.example": r"redis\+sentinel:// needs the service that the Sentinels watch",
    "redis+sentinel:///shoes": "'' is no host:port",
    "redis+sentinel://one.example/shoes/zero": "'zero' is no database",
    "redis://redis.example?socket_timeout=60": "set DROPGATE_REDIS_TIMEOUT_S",
    "rediss://redis.example?ssl_cert_reqs=none": "set DROPGATE_REDIS_TLS_VERIFY",
    "redis+sentinel://one.example/shoes?sentinel_password=secret": "set DROPGATE_REDIS_SENTINEL_PASSWORD",
    "redis://redis.example?retry_on_timeout=yes": "it has no option retry_on_timeout",
}


@pytest.mark.parametrize("url", REFUSED)
def test_what_cannot_be_used_is_refused_and_shows_no_password(url: str) -> None:
    with pytest.raises(UrlRefused, match=REFUSED[url]) as refused:
        parse(url if "@" in url else url.replace("://", "://:hush@"))
    assert "hush" not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_password_is_not_shown_by_accident() -> None:
    assert "hush" not in repr(parse("redis://anna:hush@redis.example"))


# --- the settings around it -------------------------------------------------------------------------------------------


async def test_a_refused_url_ends_the_start_with_the_settings_name(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, redis_url="redis://redis.example/shoes")
    with pytest.raises(SettingRefused, match=r"redis_url.*is no database"):
        async with open_adapters(settings, start_redis=False):
            pass


@pytest.mark.parametrize("name", ["redis_tls_ca", "redis_tls_cert", "redis_tls_key"])
def test_the_files_of_tls_without_tls_are_a_mistake(name: str) -> None:
    files: dict[str, Any] = {name: Path("ca.pem")}
    with pytest.raises(ValidationError, match=f"{name} is set and redis_url is not rediss"):
        Settings(redis_url="redis://redis.example", **files)
    assert Settings(redis_url="rediss+sentinel://one.example/shoes", **files).redis_tls_verify


async def test_a_file_of_tls_that_is_not_there_is_a_refused_setting(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, redis_url="rediss://redis.example", redis_tls_ca=tmp_path / "nowhere.pem")
    with pytest.raises(SettingRefused, match="cannot be used"):
        async with open_adapters(settings, start_redis=False):
            pass


def test_the_sentinels_password_is_a_secret() -> None:
    assert "hush" not in repr(Settings(redis_sentinel_password=SecretStr("hush")))
