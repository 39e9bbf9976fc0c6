"""What each command prints, as JSON and for people, and how it ends."""

from __future__ import annotations

import json

import pytest

from service.cli.sale_view import money

CREATE = ("sale", "create", "drop", "--sku", "tee", "--stock", "100", "--price", "4900")


def test_sale_create_makes_the_sale_and_prints_it_under_the_names_of_the_api(dropgate, bootstrap):
    result = dropgate(*CREATE, "--currency", "usd", "--limit", "2", "--opens-at", "2030-01-31T12:00:00+02:00", "--json")
    assert result.exit_code == 0
    sale = json.loads(result.stdout)
    assert sale["id"] == "drop"
    assert (sale["status"], sale["available"], sale["price"], sale["currency"]) == ("draft", 100, 4900, "USD")
    assert sale["limit_per_buyer"] == 2
    assert sale["opens_at"] == "2030-01-31T10:00:00.000Z"
    assert sale["payment_window_s"] == 900
    assert bootstrap.sales.acts[0][2].startswith("cli")


@pytest.mark.parametrize(
    ("act", "status"), [("warm", "ready"), ("open", "open"), ("close", "closed"), ("settle", "settled")]
)
def test_each_act_shows_the_sale_as_it_is_afterwards(dropgate, bootstrap, act, status):
    dropgate(*CREATE)
    result = dropgate("sale", act, "drop")
    assert result.exit_code == 0
    assert status in result.stdout
    assert bootstrap.sales.acts[-1][0] == act


def test_open_with_warm_does_both(dropgate, bootstrap):
    dropgate(*CREATE)
    dropgate("sale", "open", "drop", "--warm")
    assert bootstrap.sales.acts[-1][0] == "open+warm"


@pytest.mark.parametrize("command", [("warm", "drop"), ("open", "drop", "--warm")])
def test_what_is_not_loaded_is_not_called_done(dropgate, bootstrap, monkeypatch, command):
    dropgate(*CREATE)
    bootstrap.sales.keeper = False
    monkeypatch.setattr("service.cli.sale.SILENCE_S", 0.01)
    result = dropgate("sale", *command)
    assert result.exit_code == 1
    assert "Waiting until the keeper has loaded it" in result.stderr
    assert "dropgate keeper" in result.stderr
    assert "authority" in result.stdout


def test_stock_goes_up_and_down_once_an_id(dropgate, bootstrap):
    dropgate(*CREATE)
    up = json.loads(dropgate("sale", "stock", "drop", "--add", "50", "--id", "recount", "--json").stdout)
    assert (up["adjusted"], up["available"]) == (50, 150)
    down = dropgate("sale", "stock", "drop", "--remove", "20")
    assert down.exit_code == 0
    acts = [act for act, _, _ in bootstrap.sales.acts]
    assert acts[-2] == "adjust 50 recount"
    assert acts[-1].startswith("adjust -20 cli-")
    assert f"Noted as {acts[-1].split()[-1]}." in down.stdout


def test_an_adjustment_in_doubt_says_how_to_ask_again(dropgate, bootstrap):
    dropgate(*CREATE)
    bootstrap.sales.in_doubt = True
    result = dropgate("sale", "stock", "drop", "--remove", "20", "--id", "recount")
    assert result.exit_code == 1
    assert "dropgate sale stock drop --remove 20 --id recount" in result.stderr


def test_prices_are_shown_in_the_currency(dropgate):
    dropgate(*CREATE)
    assert "49.00 EUR" in dropgate("sale", "show").stdout
    assert "49.00 EUR (4900 minor units)" in dropgate("sale", "show", "drop").stdout
    assert [money(4900, code) for code in ("EUR", "JPY", "KWD")] == ["49.00 EUR", "4,900 JPY", "4.900 KWD"]
    assert money(5, "USD") == "0.05 USD"


def test_the_list_fits_an_old_terminal(dropgate):
    dropgate("sale", "create", "a-sale-with-quite-a-long-name", *CREATE[3:])
    shown = dropgate("sale", "show", columns="80").stdout
    for word in ("a-sale-with-quite-a-long-name", "authority", "100 of 100", "49.00 EUR"):
        assert word in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_sale_show_lists_all_sales(dropgate):
    assert "no sales yet" in dropgate("sale", "show").stdout
    dropgate(*CREATE)
    assert "drop" in dropgate("sale", "show").stdout
    assert [sale["id"] for sale in json.loads(dropgate("sale", "show", "--json").stdout)["sales"]] == ["drop"]


def test_topics_create_names_what_it_made(dropgate, bootstrap):
    bootstrap.made_topics = ["dropgate-order"]
    assert json.loads(dropgate("topics", "create", "--json").stdout) == {"created": ["dropgate-order"]}
    bootstrap.made_topics = []
    assert "were there already" in dropgate("topics", "create").stdout


def test_topics_check_fails_with_a_sentence_for_each_thing_missing(dropgate, bootstrap):
    assert dropgate("topics", "check").exit_code == 0
    bootstrap.missing_topics = ["The topic dropgate-order is missing: run `dropgate topics create`."]
    result = dropgate("topics", "check")
    assert result.exit_code == 1
    assert "dropgate topics create" in result.stderr
    as_json = dropgate("topics", "check", "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout) == {"ok": False, "missing": bootstrap.missing_topics}


def test_topics_take_the_group_of_the_order_service_and_no_nonsense(dropgate, bootstrap):
    assert dropgate("topics", "create", "--events-group", "order-service").exit_code == 0
    assert dropgate("topics", "check", "--events-group", "order-service").exit_code == 0
    assert dropgate("topics", "check").exit_code == 0
    assert bootstrap.events_groups == ["order-service", "order-service", None]
    for name in ("", "%RETRY%mine", "two words", "g" * 121):
        refused = dropgate("topics", "create", "--events-group", name)
        assert refused.exit_code == 2, name
        assert "--events-group" in refused.stderr


def test_migrate_says_where_the_database_is(dropgate):
    assert json.loads(dropgate("migrate", "--json").stdout) == {"revision": "0001"}
    assert "revision 0001" in dropgate("migrate").stdout


def test_key_create_shows_the_secret_once(dropgate, bootstrap):
    result = dropgate("key", "create", "--role", "viewer", "--json")
    assert json.loads(result.stdout) == {"id": "key-1", "role": "viewer", "key": "dg_viewer_secret"}
    assert "dg_storefront_secret" in dropgate("key", "create", "--role", "storefront").stdout
    assert bootstrap.keys == ["viewer", "storefront"]


def test_keys_are_listed_without_their_secrets_and_revoked_by_their_id(dropgate, bootstrap):
    assert "There are no keys yet" in dropgate("key", "list").stdout
    for role in ("viewer", "operator"):
        dropgate("key", "create", "--role", role)
    listed = json.loads(dropgate("key", "list", "--json").stdout)["keys"]
    created_at = "1970-01-01T00:00:00.000Z"
    assert listed == [
        {"id": "key-1", "role": "viewer", "created_at": created_at},
        {"id": "key-2", "role": "operator", "created_at": created_at},
    ]
    shown = dropgate("key", "list").stdout
    assert "key-2" in shown
    assert "operator" in shown
    assert json.loads(dropgate("key", "revoke", "key-2", "--json").stdout) == {"id": "key-2", "revoked": True}
    assert bootstrap.calls[-1].startswith("revoke key-2 by cli")
    unknown = dropgate("key", "revoke", "key-9")
    assert unknown.exit_code == 1
    assert "There is no key key-9." in unknown.stderr


def test_version_is_one_line(dropgate):
    result = dropgate("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("dropgate")


def test_help_names_every_command(dropgate):
    shown = dropgate("--help").stdout
    for command in ("demo", "dev", "serve", "consume", "keeper", "sale", "audit", "replay", "topics", "migrate", "key"):
        assert command in shown
