"""`serve`, `consume`, `keeper` and `dev`: the parts they run, what they say, how they stop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat

import pytest

from service.cli.dev import only_one
from service.cli.output import Failure
from service.cli.running import run_until_stopped


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (("serve",), "api"),
        (("consume", "order"), "order"),
        (("consume", "timeout"), "timeout"),
        (("consume", "events"), "events"),
        (("keeper",), "keeper"),
    ],
)
def test_each_command_runs_its_part(dropgate, bootstrap, command, part):
    result = dropgate(*command)
    assert result.exit_code == 0
    assert [sorted(parts) for _, parts in bootstrap.ran] == [[part]]
    assert "Ctrl-C stops it" in result.stdout


def test_serve_takes_address_and_port_and_says_where_it_answers(dropgate, bootstrap):
    result = dropgate("serve", "--host", "0.0.0.0", "--port", "0")
    settings, _ = bootstrap.ran[0]
    assert (settings.host, settings.port) == ("0.0.0.0", 0)
    assert "http://127.0.0.1:8080" in result.stdout


def test_the_exit_code_of_the_part_is_that_of_the_command(dropgate, bootstrap):
    bootstrap.exit_code = 1
    assert dropgate("keeper").exit_code == 1


def test_dev_prepares_everything_and_runs_every_part(dropgate, bootstrap, tmp_path):
    result = dropgate("dev", "--home", "stack")
    assert result.exit_code == 0
    assert bootstrap.calls[:2] == ["migrate", "create_topics"]
    settings, parts = bootstrap.ran[0]
    assert sorted(parts) == ["api", "events", "keeper", "order", "timeout"]
    keys = json.loads((tmp_path / "stack/keys.json").read_text())
    assert set(keys) == {"storefront", "payments", "participant", "operator", "payment_secret"}
    assert [secret.get_secret_value() for secret in settings.payment_secrets] == [keys["payment_secret"]]
    assert "http://127.0.0.1:8080" in result.stdout
    assert "keys.json" in result.stdout
    assert "Dropgate is ready at http://127.0.0.1:8080" in result.stdout
    assert "curl -sS http://127.0.0.1:8080/admin/v1/sales" in result.stdout
    assert "Idempotency-Key" in result.stdout


def test_dev_offers_no_first_sale_where_there_are_sales(dropgate, bootstrap):
    dropgate("sale", "create", "drop", "--sku", "tee", "--stock", "100", "--price", "4900")
    result = dropgate("dev", "--home", "stack")
    assert "It has 1 sale: `dropgate sale show`" in result.stdout
    assert "curl" not in result.stdout


def test_dev_does_not_call_itself_ready_before_it_is(dropgate, bootstrap, monkeypatch):
    monkeypatch.setattr("service.cli.dev.READY_WAIT_S", 0.0)
    bootstrap.not_ready = ["redis: no answer within 2 s"]
    shown = dropgate("dev", "--home", "stack").stdout
    assert "NOT ready" in shown
    assert "✗ redis: no answer within 2 s" in shown
    assert "is ready" not in shown


def test_keys_of_an_older_release_are_kept_and_completed(dropgate, bootstrap, tmp_path):
    dropgate("dev", "--home", "stack")
    path = tmp_path / "stack/keys.json"
    older = json.loads(path.read_text())
    del older["participant"]
    path.write_text(json.dumps(older))
    dropgate("dev", "--home", "stack")
    found = json.loads(path.read_text())
    assert found.pop("participant")["key"] == "dg_participant_secret"
    assert found == older


def test_dev_keeps_its_keys_to_their_owner_and_makes_them_once(dropgate, bootstrap, tmp_path):
    dropgate("dev", "--home", "stack")
    before = (tmp_path / "stack/keys.json").read_text()
    dropgate("dev", "--home", "stack")
    assert (tmp_path / "stack/keys.json").read_text() == before
    assert stat.S_IMODE((tmp_path / "stack/keys.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "stack").stat().st_mode) == 0o700
    assert bootstrap.keys == ["storefront", "payments", "operator", "participant"]


def test_dev_says_where_it_runs_while_it_runs(dropgate, bootstrap, tmp_path):
    seen = []

    def look() -> None:
        seen.append(json.loads((tmp_path / "stack/running.json").read_text()))
        os.kill(os.getpid(), signal.SIGTERM)

    bootstrap.while_running = look
    assert dropgate("dev", "--home", "stack").exit_code == 0
    assert seen == [{"url": "http://127.0.0.1:8080", "pid": os.getpid()}]
    assert not (tmp_path / "stack/running.json").exists()


def test_two_of_them_do_not_share_a_folder(dropgate, tmp_path):
    (tmp_path / "stack").mkdir()
    with only_one(tmp_path / "stack"):
        result = dropgate("dev", "--home", "stack")
    assert result.exit_code == 1
    assert "Another `dropgate dev` runs" in result.stderr
    with only_one(tmp_path / "stack"), pytest.raises(Failure), only_one(tmp_path / "stack"):
        pass


def test_broken_keys_are_not_overwritten(dropgate, tmp_path):
    (tmp_path / "stack").mkdir()
    (tmp_path / "stack/keys.json").write_text("{}")
    result = dropgate("dev", "--home", "stack")
    assert result.exit_code == 1
    assert "keys.json" in result.stderr
    assert (tmp_path / "stack/keys.json").read_text() == "{}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_for_a_graceful_stop(number):
    async def main(stop: asyncio.Event) -> int:
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.wait(), 5)
        return 7

    assert run_until_stopped(main, stop_timeout_s=1) == 7


def test_the_end_of_the_parent_asks_for_a_graceful_stop(monkeypatch):
    read_end, write_end = os.pipe()

    class Pipe:
        def fileno(self) -> int:
            return read_end

    monkeypatch.setattr("sys.stdin", Pipe())

    async def main(stop: asyncio.Event) -> int:
        await asyncio.sleep(0.05)
        assert not stop.is_set()
        os.close(write_end)
        await asyncio.wait_for(stop.wait(), 5)
        return 0

    assert run_until_stopped(main, stop_timeout_s=1, exit_with_parent=True) == 0
    os.close(read_end)
