"""`dropgate key create|list|revoke`: bearer keys of the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.output import AsJson, Home, console, facts_table, print_json, say, table
from service.cli.services import actor, check_schema, with_settings
from service.domain.event import rfc3339

if TYPE_CHECKING:
    from collections.abc import Sequence

    from service.ports.orders import ApiKey
    from service.settings import Settings

keys = typer.Typer(no_args_is_help=True, help="Bearer keys of the HTTP API.")


@keys.command()
def create(
    role: Annotated[str, typer.Option("--role", help="storefront, payments, participant, viewer or operator.")],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Make a key for a role. Its secret is shown once and stored only as a hash."""
    from service.bootstrap import create_key
    from service.core.keys import Role

    if role not in {known.value for known in Role}:
        raise typer.BadParameter(f"{role!r} is not one of {', '.join(Role)}.", param_hint="'--role'")

    async def work(settings: Settings) -> tuple[str, str]:
        await check_schema(settings)
        return await create_key(settings, Role(role))

    key_id, secret = with_settings(home, work)
    if as_json:
        print_json({"id": key_id, "role": role, "key": secret})
        return
    console().print(facts_table("A new key", {"id": key_id, "role": role}))
    say(f"  {secret}\n\nKeep it now: only its hash is stored. Use it as `Authorization: Bearer …`.")


@keys.command(name="list")
def list_(home: Home = None, as_json: AsJson = False) -> None:
    """List the keys that work. Their secrets are nowhere."""
    from service.bootstrap import list_keys

    async def work(settings: Settings) -> Sequence[ApiKey]:
        await check_schema(settings)
        return await list_keys(settings)

    found = with_settings(home, work)
    rows = [(key.id, key.role, rfc3339(key.created_at_ms)) for key in found]
    if as_json:
        print_json({"keys": [{"id": id_, "role": role, "created_at": created} for id_, role, created in rows]})
    elif not rows:
        say("There are no keys yet: make one with `dropgate key create`.")
    else:
        console().print(table("Keys", ("key", "role", "created"), rows))


@keys.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEY", help="The key's id, as `dropgate key list` shows it.")],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a key, for good: every process refuses it within a second."""
    from service.bootstrap import revoke_key

    async def work(settings: Settings) -> None:
        await check_schema(settings)
        await revoke_key(settings, key_id, actor())

    with_settings(home, work)
    if as_json:
        print_json({"id": key_id, "revoked": True})
    else:
        say(f"The key {key_id} is revoked: every process refuses it within a second.")


def register(app: typer.Typer) -> None:
    app.add_typer(keys, name="key")
