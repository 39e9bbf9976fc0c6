"""The demo's folder: clean at each start, and never somebody else's."""

from __future__ import annotations

import tempfile

import pytest

from service.cli.demo.home import MARKER, demo_home
from service.cli.output import Failure


@pytest.fixture
def tmp_root(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


def test_a_folder_that_no_demo_made_is_refused_untouched(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(Failure, match="not empty"), demo_home(tmp_path, keep=False):
        pass
    assert (tmp_path / "precious.txt").read_text() == "mine"
    assert not (tmp_path / MARKER).exists()


def test_an_empty_or_new_folder_becomes_the_demos(tmp_path):
    with demo_home(tmp_path / "new/deep", keep=False) as home:
        assert home == tmp_path / "new/deep"
        assert [path.name for path in home.iterdir()] == [MARKER]


def test_the_next_demo_starts_clean(tmp_path):
    home = tmp_path / "demo"
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine.txt").write_text("mine")
    with demo_home(home, keep=False):
        (home / "dropgate.db").write_text("old")
        (home / "valkey").mkdir()
        (home / "valkey/dump").write_text("old")
        (home / "link").symlink_to(outside)
    with demo_home(home, keep=False):
        assert [path.name for path in home.iterdir()] == [MARKER]
    assert (outside / "mine.txt").exists()


def test_keep_refuses_to_empty_an_earlier_demo(tmp_path):
    with demo_home(tmp_path / "demo", keep=True) as home:
        (home / "dropgate.db").write_text("old")
    with pytest.raises(Failure, match="earlier demo"), demo_home(tmp_path / "demo", keep=True):
        pass
    assert (home / "dropgate.db").exists()


def test_two_demos_do_not_share_a_folder(tmp_path):
    with (
        demo_home(tmp_path / "demo", keep=False),
        pytest.raises(Failure, match="Another demo"),
        demo_home(tmp_path / "demo", keep=False),
    ):
        pass


def test_without_a_name_the_usual_folder_is_used_again(tmp_root):
    with demo_home(None, keep=False) as first:
        (first / "old").write_text("old")
    with demo_home(None, keep=False) as second:
        assert second == first
        assert not (second / "old").exists()


def test_without_a_name_two_demos_at_once_have_two_folders(tmp_root):
    with demo_home(None, keep=False) as first, demo_home(None, keep=False) as second:
        assert first != second


def test_keep_takes_a_folder_that_no_later_demo_empties(tmp_root):
    with demo_home(None, keep=True) as kept:
        (kept / "old").write_text("old")
    with demo_home(None, keep=False) as later:
        assert later != kept
    assert (kept / "old").exists()


def test_a_usual_folder_that_others_can_write_to_is_not_used(tmp_root):
    with demo_home(None, keep=False) as usual:
        pass
    usual.chmod(0o777)
    with demo_home(None, keep=False) as other:
        assert other != usual


def test_a_server_that_still_runs_there_is_waited_for_then_named(tmp_path, monkeypatch):
    from service.cli.demo import home as module
    from service.cli.dev import only_one

    monkeypatch.setattr(module, "OLD_SERVER_GRACE_S", 0.2)
    with demo_home(tmp_path / "demo", keep=False) as home:
        pass
    with only_one(home), pytest.raises(Failure, match="still runs"), demo_home(home, keep=False):
        pass
