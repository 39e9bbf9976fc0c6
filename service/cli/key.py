"""`dropgate key create`: bearer keys of the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.output import AsJson, Home, console, facts_table, print_json, say
from service.cli.services import check_schema, with_settings

if TYPE_CHECKING:
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


def register(app: typer.Typer) -> None:
    app.add_typer(keys, name="key")
