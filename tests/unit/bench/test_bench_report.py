"""The bench's report: goals judged at their borders, repeats taken together, pictures that stand alone."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from bench.figures import Audit, Figure, Latency, Measure, Usage, Variant
from bench.report import folder
from bench.report.__main__ import app
from bench.report.compare import Change, compare
from bench.report.facts import Fact, FactName
from bench.report.goals import GOALS, Judged, Verdict, judge_all
from bench.report.groups import groups_of
from bench.report.pictures import BAD, NoPictures, pictures
from bench.report.run import Run, Unreadable, decode, encode
from bench.report.table import TITLES, plain, show, tables
from bench.subjects import Subject

CLEAN = Audit(stock=1_000, told=1_000, sold=1_000, oversold=0, lost=0, in_doubt=0)


def figure(subject: str, measure: Measure, rate: float = 1_000, *, clients: int = 64, unit: str = "", **more) -> Figure:
    units = {Measure.ACCEPT: "reservations", Measure.ACCEPT_AT_RATE: "reservations", Measure.DRAIN: "orders"}
    return Figure(
        subject=subject,
        measure=measure,
        clients=clients,
        unit=unit or units.get(measure, "requests"),
        count=round(rate * 10),
        seconds=10,
        **more,
    )


def latency(p50_ms: float = 1.0, p99_ms: float = 2.0) -> Latency:
    return Latency(p50_ms=p50_ms, p99_ms=p99_ms, p999_ms=p99_ms)


def run(*figures: Figure, facts: tuple[Fact, ...] = (), machine: str = "two cores") -> Run:
    return Run(
        started_at=datetime(2026, 11, 30, 12, tzinfo=UTC),
        machine=machine,
        versions={"RocketMQ": "5.4.0"},
        repeats=1,
        figures=figures,
        facts=facts,
    )


def judged(what: str, of: Run) -> Judged:
    (found,) = [it for it in judge_all(of) if it.goal.what.startswith(what)]
    return found


def floor(rate: float, clients: int = 64) -> Figure:
    return figure(Subject.FLOOR_EVALSHA, Measure.FLOOR, rate, clients=clients)


def java(rate: float) -> Figure:
    return figure(Subject.JAVA_HALF, Measure.FLOOR, rate, unit="messages")


def accept(subject: str, rate: float, clients: int = 64, **more) -> Figure:
    return figure(subject, Measure.ACCEPT, rate, clients=clients, **more)


def fact(name: FactName, value: float) -> Fact:
    return Fact(name=name, subject=Subject.DROPGATE_5, value=value, unit="?")


def paced(subject: str, variant: Variant, p99_ms: float) -> Figure:
    return figure(subject, Measure.ACCEPT_AT_RATE, variant=variant, latency=latency(1, p99_ms))


def drained(subject: str, rate: float) -> Figure:
    return figure(subject, Measure.DRAIN, rate)


def hostile(subject: str, rate: float, variant: Variant = Variant.ONLY) -> Figure:
    return figure(subject, Measure.HOSTILE, rate, clients=63, unit="reservations", variant=variant)


def kept_among_hostile(subject: str, rate: float) -> tuple[Figure, Figure]:
    """Of 3,000 requests a second that the good clients have alone."""
    return hostile(subject, 3_000, Variant.GOOD_ALONE), hostile(subject, rate)


def lost(count: int) -> Audit:
    return msgspec.structs.replace(CLEAN, lost=count)


def oversold(count: int) -> Audit:
    return msgspec.structs.replace(CLEAN, sold=CLEAN.stock + count, oversold=count)


def rows(rate: float) -> Figure:
    return figure(Subject.RAW_INSERT, Measure.FLOOR, rate, unit="rows", clients=4)


def rush(sold: int, buyers: int = 100_000) -> Figure:
    audit = msgspec.structs.replace(CLEAN, sold=sold)
    return figure(Subject.DROPGATE_5, Measure.RUSH, buyers / 10, audit=audit)


def used(resident_mb: float, process: str = "dropgate api") -> Figure:
    other = Usage(process="redis", cores=1.0, resident_mb=9_999)
    return accept(Subject.DROPGATE_5, 1, usage=(other, Usage(process=process, cores=1.0, resident_mb=resident_mb)))


def used_by(process: str, cores: float) -> Usage:
    return Usage(process=process, cores=cores, resident_mb=40 * cores)


def both_engines(better: float, other: float) -> tuple[Figure, Figure]:
    return accept(Subject.ENGINE_4, better, 1_000), accept(Subject.ENGINE_5, other, 1_000)


REFUSED_MOST = ((Subject.DROPGATE_5, 9_999), (Subject.DROPGATE_4, 1))


BORDERS: dict[str, tuple[Callable[[Any], Run], float, float]] = {
    "HTTP accept, 64": (
        lambda it: run(floor(3_000), accept(Subject.DROPGATE_4, it), accept(Subject.DROPGATE_5, 1)),
        3_000,
        2_999.9,
    ),
    "HTTP accept, 256": (
        lambda it: run(floor(3_000, 256), accept(Subject.DROPGATE_5, it, 256), accept(Subject.DROPGATE_4, 1, 256)),
        3_600,
        3_599.9,
    ),
    "HTTP reject": (
        lambda it: run(floor(3_000), *(figure(of, Measure.REJECT, min(it, most)) for of, most in REFUSED_MOST)),
        4_500,
        4_499.9,
    ),
    "engine without HTTP, 1,000 clients, better": (lambda it: run(java(8_000), *both_engines(it, 1)), 12_000, 11_999.9),
    "engine without HTTP, 1,000 clients, the other": (
        lambda it: run(java(8_000), *both_engines(99_999, it)),
        9_600,
        9_599.9,
    ),
    "engine against one half message per order, rocketmq5": (
        lambda it: run(accept(Subject.ONE_HALF_5, 1_000), accept(Subject.ENGINE_5, it, 1_000)),
        12_000,
        11_999.9,
    ),
    "engine against one half message per order, rocketmq4": (
        lambda it: run(accept(Subject.ONE_HALF_4, 4_000, 16), accept(Subject.ENGINE_4, it, 256)),
        16_000,
        15_999.9,
    ),
    "HTTP accept p50, one client, rocketmq5": (
        lambda it: run(
            figure(Subject.HALF_SEND_5, Measure.FLOOR, clients=1, unit="messages", latency=latency(3.5)),
            accept(Subject.DROPGATE_5, 1, 1, latency=latency(it)),
        ),
        5.5,
        5.51,
    ),
    "HTTP accept p50, one client, rocketmq4": (
        lambda it: run(
            figure(Subject.HALF_SEND_4, Measure.FLOOR, clients=1, unit="messages", latency=latency(0.7)),
            accept(Subject.DROPGATE_4, 1, 1, latency=latency(it)),
        ),
        2.7,
        2.71,
    ),
    "HTTP accept p99 at half the peak rate, rocketmq5": (
        lambda it: run(
            paced(Subject.DROPGATE_5, Variant.HALF_THE_PEAK, it),
            paced(Subject.DROPGATE_5, Variant.TENTH_OF_THE_PEAK, 999),
        ),
        40,
        40.1,
    ),
    "HTTP accept p99 at half the peak rate, rocketmq4": (
        lambda it: run(paced(Subject.DROPGATE_4, Variant.HALF_THE_PEAK, it)),
        40,
        40.1,
    ),
    "HTTP accept p99 at a tenth of the peak rate, rocketmq5": (
        lambda it: run(
            paced(Subject.DROPGATE_5, Variant.TENTH_OF_THE_PEAK, it),
            paced(Subject.DROPGATE_5, Variant.HALF_THE_PEAK, 999),
        ),
        10,
        10.1,
    ),
    "HTTP accept p99 at a tenth of the peak rate, rocketmq4": (
        lambda it: run(paced(Subject.DROPGATE_4, Variant.TENTH_OF_THE_PEAK, it)),
        10,
        10.1,
    ),
    "order drain, rocketmq5": (lambda it: run(rows(20_000), drained(Subject.DROPGATE_5, it)), 7_000, 6_999.9),
    "order drain, rocketmq4": (lambda it: run(rows(90_000), drained(Subject.DROPGATE_4, it)), 8_000, 7_999.9),
    "10,000 unpaid orders": (lambda it: run(facts=(fact(FactName.EXPIRED_AFTER, it),)), 10, 10.01),
    "memory of a process": (lambda it: run(used(it)), 150, 150.1),
    "memory over a soak": (lambda it: run(facts=(fact(FactName.SOAK_GREW, it),)), 10, 10.1),
    "memory of Redis": (lambda it: run(facts=(fact(FactName.REDIS_BYTES, it),)), 400, 401),
    "1,000 units": (lambda it: run(rush(it)), 1_000, 999),
    "a tenth of the requests hostile": (
        lambda it: run(*kept_among_hostile(Subject.DROPGATE_4, 2_999), *kept_among_hostile(Subject.DROPGATE_5, it)),
        2_400,
        2_399.9,
    ),
    "audits": (lambda it: run(accept(Subject.ENGINE_5, 1, audit=CLEAN), accept("optimistic", 1, audit=lost(it))), 0, 1),
    "what is meant to fail": (lambda it: run(*(accept("naive", 1, audit=oversold(n)) for n in (0, it))), 1, 0),
}
"""By how the goal begins: a run that finds this number, the number that just meets it, and one that does not."""


def test_every_goal_has_its_border_tried():
    assert len(BORDERS) == len(GOALS)
    assert {judged(what, run()).goal.what for what in BORDERS} == {goal.what for goal in GOALS}


@pytest.mark.parametrize("what", BORDERS)
def test_a_goal_is_met_at_its_border_and_missed_just_beyond(what):
    measured, border, beyond = BORDERS[what]
    assert judged(what, measured(border)).verdict is Verdict.MET
    assert judged(what, measured(beyond)).verdict is Verdict.MISSED


@pytest.mark.parametrize("what", BORDERS)
def test_a_goal_that_nobody_measured_is_neither_met_nor_missed(what):
    assert judged(what, run()).verdict is Verdict.NOT_MEASURED


def test_a_ratio_without_its_other_number_is_not_measured_and_shows_the_one_it_has():
    found = judged("HTTP accept, 64", run(floor(3_000, clients=256), accept(Subject.DROPGATE_5, 9_999)))
    assert (found.verdict, found.beside) == (Verdict.NOT_MEASURED, None)
    assert found.found is not None
    assert found.found.value == 9_999


def test_the_other_transport_is_not_judged_by_the_only_one_that_ran():
    alone = run(java(1_000), accept(Subject.ENGINE_5, 9_000, 1_000))
    assert judged("engine without HTTP, 1,000 clients, better", alone).verdict is Verdict.MET
    assert judged("engine without HTTP, 1,000 clients, the other", alone).verdict is Verdict.NOT_MEASURED


def test_the_better_transport_is_met_by_one_alone_and_missed_only_once_both_are_known():
    """The better of two is at least what the one has; what the other has nobody knows."""
    alone = run(floor(3_000), accept(Subject.DROPGATE_5, 3_000))
    assert judged("HTTP accept, 64", alone).verdict is Verdict.MET
    line = row(plain(tables(alone)), "✓   HTTP accept, 64")
    assert "Dropgate, rocketmq5 (Dropgate, rocketmq4: not measured)" in line
    short = run(floor(3_000), accept(Subject.DROPGATE_5, 2_000))
    assert judged("HTTP accept, 64", short).verdict is Verdict.NOT_MEASURED
    assert "2,000 reservations/s, Dropgate, rocketmq5 (Dropgate, rocketmq4: not measured)" in plain(tables(short))
    both = run(floor(3_000), accept(Subject.DROPGATE_5, 2_000), accept(Subject.DROPGATE_4, 1_000))
    assert judged("HTTP accept, 64", both).verdict is Verdict.MISSED
    assert "not measured)" not in row(plain(tables(both)), "✗   HTTP accept, 64")


def test_what_good_clients_keep_is_missed_by_one_transport_alone_and_met_only_by_both():
    """The lesser of two is at most what the one has."""
    alone = run(*kept_among_hostile(Subject.DROPGATE_5, 2_700))
    line = row(plain(tables(alone)), "–   a tenth of the requests hostile")
    assert "Dropgate, rocketmq5, 63 clients (Dropgate, rocketmq4: not measured)" in line
    assert judged("a tenth", run(*kept_among_hostile(Subject.DROPGATE_5, 2_000))).verdict is Verdict.MISSED


def test_each_goal_has_a_row_and_says_where_its_measurement_is_missing():
    rows = plain(tables(run())).partition("Goals")[2].splitlines()
    for goal in GOALS:
        (line,) = [it for it in rows if it.strip().startswith(f"–   {goal.what} ")]
        assert "not measured" in line


def test_a_drain_is_met_by_its_number_alone_and_missed_only_once_the_floor_is_known():
    assert judged("order drain, rocketmq5", run(drained(Subject.DROPGATE_5, 8_000))).verdict is Verdict.MET
    assert judged("order drain, rocketmq5", run(drained(Subject.DROPGATE_5, 7_999))).verdict is Verdict.NOT_MEASURED


def test_a_smaller_rush_says_nothing_of_the_goal():
    assert judged("1,000 units", run(rush(1_000, buyers=20_000))).verdict is Verdict.NOT_MEASURED


def test_one_rush_that_oversold_outweighs_all_that_did_not():
    found = judged("1,000 units", run(rush(1_000), rush(1_001), rush(1_000)))
    assert found.verdict is Verdict.MISSED
    assert found.found is not None
    assert found.found.value == 1_001


def test_memory_counts_each_process_of_dropgate_by_itself_and_no_other():
    found = judged("memory of a process", run(used(140), used(145, process="dropgate order: child 1")))
    assert found.verdict is Verdict.MET
    assert found.found is not None
    assert found.found.of.startswith("dropgate order: child 1")


def test_only_what_is_meant_to_fail_may_have_an_audit_that_is_not_clean():
    naive = accept("naive", 1, audit=lost(3))
    assert judged("audits", run(naive, accept("optimistic", 1, audit=CLEAN))).verdict is Verdict.MET
    missed = judged("audits", run(naive, accept("bare_decr", 1, audit=lost(3)), accept("optimistic", 1, audit=CLEAN)))
    assert missed.found is not None
    assert (missed.verdict, missed.found.value, missed.found.of) == (Verdict.MISSED, 1, "bare_decr")


def test_a_naive_strategy_that_sells_no_unit_twice_is_a_missed_goal():
    """It is what shows that an audit can find anything: a run in which it is clean has looked at nothing."""
    kept = run(accept("naive", 1, audit=CLEAN), accept("optimistic", 1, audit=CLEAN))
    assert "✗   what is meant to fail (naive)" in plain(tables(kept))
    assert judged("what is meant to fail", run(accept("optimistic", 1, audit=CLEAN))).verdict is Verdict.NOT_MEASURED


# --- repeats ----------------------------------------------------------------------------------------------------------


def test_repeats_are_shown_by_their_median_with_the_least_and_the_most():
    repeats = [accept("optimistic", rate, latency=latency(rate / 100)) for rate in (1_300, 1_000, 1_100)]
    (group,) = groups_of(repeats)
    assert (group.rates.median, group.rates.least, group.rates.most) == (1_100, 1_000, 1_300)
    text = plain(tables(run(*repeats)))
    assert "1,100 (1,000–1,300)" in text
    assert "11.0 (10.0–13.0)" in text


def test_clients_units_and_variants_are_never_taken_together():
    figures = [
        accept("a", 1, 16),
        accept("a", 1, 64),
        accept("a", 1, 64, unit="orders"),
        paced("a", Variant.HALF_THE_PEAK, 1),
        paced("a", Variant.TENTH_OF_THE_PEAK, 1),
        hostile("a", 1),
        hostile("a", 1, Variant.GOOD_ALONE),
        *(figure("a", Measure.SOAK, variant=half) for half in (Variant.FIRST_HALF, Variant.SECOND_HALF)),
        *(figure("a", Measure.KILLED, variant=it) for it in (Variant.ORDER_KILLED, Variant.API_KILLED)),
    ]
    assert len(groups_of(figures)) == len(figures)


def test_of_repeated_audits_the_worst_is_shown():
    text = plain(tables(run(*(accept("bare_decr", 1_000, audit=audit) for audit in (CLEAN, lost(7), CLEAN)))))
    assert "✗ 7" in row(text, "bare_decr")


def test_every_measure_has_a_title():
    assert set(TITLES) == set(Measure)


# --- tables -----------------------------------------------------------------------------------------------------------


def test_the_naive_row_shows_how_many_it_oversold():
    text = plain(tables(run(accept("naive", 4_700, audit=oversold(1_203)), accept("optimistic", 900, audit=CLEAN))))
    assert "✗ 1,203" in row(text, "naive")
    assert "✗" not in row(text, "optimistic")


def test_each_unit_has_a_column_of_its_own():
    text = plain(tables(run(floor(3_000), java(12_000), rows(35_000))))
    head = row(text, "subject")
    assert head.index("requests/s") < head.index("messages/s") < head.index("rows/s")
    for subject, unit, rate in (("Starlette", "requests/s", "3,000"), ("RocketMQ Java", "messages/s", "12,000")):
        line = row(text, subject)
        assert line.index(rate) + len(rate) == head.index(unit) + len(unit)


def test_a_multiple_of_the_floor_is_there_only_with_as_many_clients():
    with_floor = plain(tables(run(floor(2_000, 64), accept(Subject.DROPGATE_5, 3_000, 64))))
    assert "× floor" in with_floor
    assert re.search(r"3,000 +1\.50", row(with_floor, "Dropgate, rocketmq5"))
    assert "× floor" not in plain(tables(run(floor(2_000, 64), accept(Subject.DROPGATE_5, 3_000, 256))))


def test_a_figure_whose_generator_was_the_limit_says_so_beside_the_tables():
    note = "the load generator used 0.95 of its core: it may be the limit"
    assert note in plain(tables(run(accept(Subject.DROPGATE_5, 3_000, note=note))))


def test_a_goal_shows_its_mark_and_both_numbers():
    text = plain(tables(run(floor(3_000), accept(Subject.DROPGATE_4, 3_600))))
    line = row(text, "✓   HTTP accept, 64")
    assert "3,600 reservations/s, Dropgate, rocketmq4" in line
    assert "3,000 requests/s" in line
    assert line.endswith("1.20")
    assert "–   HTTP accept, 256" in text


@pytest.mark.parametrize("width", [10, 40, 80, 120, 300])
@pytest.mark.parametrize("terminal", [False, True])
def test_no_number_is_cut_off_however_narrow_it_is(terminal, width, capsys):
    subject = "a strategy with a name that is longer than most"
    show(run(accept(subject, 1_234_567, audit=oversold(1_203))), Console(width=width, force_terminal=terminal))
    text = capsys.readouterr().out
    assert "1,234,567" in text
    assert "✗ 1,203" in text
    assert subject in text


def test_servers_have_a_row_a_measurement_and_their_memory_is_said_once():
    def measured(redis_cores: float, **more: float) -> Figure:
        api = used_by("dropgate api", 0.75)
        servers = tuple(used_by(name, cores) for name, cores in {"Redis": redis_cores, **more}.items())
        return accept(Subject.DROPGATE_5, 1, usage=(api, api), servers=servers)

    found = run(measured(0.2), measured(0.4), measured(0.3, broker=1.25), floor(1))
    text = plain(tables(found)).partition("Cores that the servers used")[2]
    assert re.search(r"clients +all others +Redis +broker\n", text)
    assert re.search(r"Dropgate, rocketmq5 +accept +– +64 +1\.50 +0\.30 +1\.25\n", text)
    assert "Starlette" not in text.partition("Goals")[0]
    assert "Redis 16, broker 50" in " ".join(text.split())
    assert judged("memory of a process", found).verdict is Verdict.MET


def test_a_run_that_watched_no_server_has_no_table_and_no_picture_of_them():
    found = run(accept(Subject.DROPGATE_5, 3_600, usage=(used_by("dropgate api", 0.9),)))
    assert "servers" not in plain(tables(found))
    assert "cores.svg" not in pictures(found)


def test_a_server_that_could_not_be_watched_is_said_among_the_facts_of_the_machine():
    why = "Redis at far:6379 is not watched: it is on another machine."
    found = msgspec.structs.replace(run(), unwatched=(why, "database is not watched: it is gone."))
    text = plain(tables(found))
    assert re.search(rf"not watched +{re.escape(why)}\n +database is not", text)
    assert "not watched" not in plain(tables(run()))
    assert decode(encode(found)) == found


# --- the document and the folder --------------------------------------------------------------------------------------


def a_whole_run() -> Run:
    more: Any = {
        "usage": (Usage(process="dropgate api", cores=0.9, resident_mb=88.5),),
        "answers": {"202": 3},
        "note": "so",
    }
    return run(
        floor(3_000, 16),
        floor(3_000),
        accept(Subject.DROPGATE_5, 3_600, 16, latency=latency(), audit=CLEAN, **more),
        accept(Subject.DROPGATE_5, 3_600, latency=latency(), audit=CLEAN, servers=(used_by("Redis", 0.4),), **more),
        accept("naive <1>", 4_700, latency=latency(), audit=oversold(1_203)),
        facts=(fact(FactName.REDIS_BYTES, 312),),
    )


DRAWN = {
    *("rate-floor-requests.svg", "rate-accept-reservations.svg"),
    *("sellers-reservations.svg", "latency.svg", "cores.svg"),
}
"""Of the whole run."""


def test_a_run_comes_back_from_its_document_as_it_was():
    assert decode(encode(a_whole_run())) == a_whole_run()


def test_a_field_of_a_later_bench_does_not_keep_a_run_from_being_read():
    assert decode(encode(run()).replace(b"{", b'{"later": 1, ', 1)) == run()


def test_a_run_of_an_earlier_bench_is_read_without_what_it_did_not_write():
    found = run(paced(Subject.DROPGATE_5, Variant.HALF_THE_PEAK, 1))
    document = json.loads(encode(found))
    del document["unwatched"], document["figures"][0]["variant"], document["figures"][0]["servers"]
    (figure,) = found.figures
    plainer = msgspec.structs.replace(found, figures=(msgspec.structs.replace(figure, variant=Variant.ONLY),))
    assert decode(json.dumps(document).encode()) == plainer


@pytest.mark.parametrize("document", [b"", b"{}", b"[1]", b"\xff"])
def test_what_is_no_run_is_refused_with_a_sentence(document):
    with pytest.raises(Unreadable, match="not a run of the bench"):
        decode(document)


def test_a_folder_has_the_document_the_table_and_the_pictures(tmp_path):
    assert folder.write(a_whole_run(), tmp_path) is None
    assert folder.read(tmp_path) == a_whole_run()
    assert "✗ 1,203" in (tmp_path / "table.txt").read_text(encoding="utf-8")
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == DRAWN


def test_pictures_of_an_earlier_run_do_not_stay(tmp_path):
    folder.write(a_whole_run(), tmp_path)
    folder.write(run(), tmp_path)
    assert list((tmp_path / "pictures").iterdir()) == []


def test_without_pygal_the_table_and_the_document_still_come(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygal", None)
    sentence = folder.write(a_whole_run(), tmp_path)
    assert sentence is not None
    assert "pip install --editable '.[bench]'" in sentence
    assert folder.read(tmp_path) == a_whole_run()
    assert (tmp_path / "table.txt").is_file()
    with pytest.raises(NoPictures):
        pictures(a_whole_run())


# --- pictures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_a_picture_is_well_formed_and_stands_alone(name):
    svg = pictures(a_whole_run())[name]
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not [it for it in root.iter() if it.tag.endswith(("script", "image", "foreignObject"))]
    assert not [key for it in root.iter() for key in it.attrib if key.endswith("href") or key.startswith("on")]
    assert not re.search(rb"xml-stylesheet|@import|url\((?!#)|javascript:", svg)
    assert set(re.findall(rb"\w+://[^\"' ]+", svg)) == {b"http://www.w3.org/2000/svg"}


def test_pictures_leave_no_finder_among_the_imports():
    pictures(a_whole_run())
    assert not [finder for finder in sys.meta_path if "pygal" in type(finder).__module__]


def test_the_same_run_gives_the_same_pictures():
    assert pictures(a_whole_run()) == pictures(a_whole_run())


def test_the_picture_of_the_cores_has_a_part_for_each_server_and_one_for_all_others():
    def bought(subject: str, database: float, name_server: float) -> Figure:
        servers = (used_by("database", database), used_by("name server", name_server))
        return accept(subject, 1, usage=(used_by("dropgate api", 0.9),), servers=servers)

    found = run(bought("a", 0.42, 0.01), bought("b", 0.03, 0.09), accept("naive", 1, servers=(used_by("Redis", 1),)))
    svg = pictures(found)["cores.svg"].decode()
    written = re.findall(r"<text[^>]*>([^<]+)</text>", svg)
    assert {"all others", "database", "a", "b"} <= set(written)
    assert not {"name server", "naive", "Redis"} & set(written), "too little to be seen, or all others not known"
    assert "0.42" in written
    assert "0.03" not in written, "its part is thinner than the number"


def test_what_sold_wrongly_is_red_and_says_how_much():
    svg = pictures(a_whole_run())["sellers-reservations.svg"].decode()
    assert "✗ naive &lt;1&gt;: oversold 1,203" in svg
    assert svg.count(f"fill: {BAD}") == 1


# --- two runs ---------------------------------------------------------------------------------------------------------


def test_a_rate_is_slower_only_beyond_a_tenth_and_beyond_its_repeats():
    def change(before: tuple[float, ...], after: tuple[float, ...]) -> Change:
        first, second = (run(*(accept("a", rate) for rate in rates)) for rates in (before, after))
        (pair,) = compare(first, second).pairs
        return pair.change

    assert change((1_000,) * 2, (900,) * 2) is Change.SAME
    assert change((1_000,) * 2, (899,) * 2) is Change.SLOWER
    assert change((1_000,) * 2, (1_101,) * 2) is Change.FASTER
    assert change((1_000, 1_000, 800), (700, 700, 850)) is Change.SAME


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (3, 1)])
def test_where_one_run_has_a_measurement_once_nobody_can_tell(before, after, tmp_path):
    """The first repeat of a run is slow by itself: its servers were cold."""
    folder.write(run(*[accept("a", 1_000)] * before), tmp_path / "a")
    folder.write(run(*[accept("a", 2_000)] * after), tmp_path / "b")
    result = CliRunner().invoke(app, [str(tmp_path / "a"), str(tmp_path / "b")])
    assert result.exit_code == 0
    assert "cannot tell" in row(result.stdout, "a ")
    assert "Of 1 of 1 measurements nobody can tell whether their rate changed" in result.stdout
    assert "Nothing got worse, of what can be told." in result.stdout


def test_what_got_worse_is_named_and_ends_with_1(tmp_path):
    other = accept(Subject.DROPGATE_4, 900, audit=CLEAN)
    before = run(*[floor(3_000), accept(Subject.DROPGATE_5, 3_600, audit=CLEAN), other] * 2)
    after = run(*[floor(3_000), accept(Subject.DROPGATE_5, 1_800, audit=lost(2)), other] * 2, machine="four cores")
    folder.write(before, tmp_path / "a")
    folder.write(after, tmp_path / "b")
    result = CliRunner().invoke(app, [str(tmp_path / "a"), str(tmp_path / "b")])
    assert result.exit_code == 1
    assert re.search(r"3,600 +1,800 +reservations +0\.50", result.stdout)
    assert "The machines differ" in result.stdout
    assert "Dropgate, rocketmq5, accept, 64 clients: 1,800 reservations/s, before 3,600." in result.stdout
    assert "its audit was clean, and is not any more" in result.stdout
    assert "Goal missed that was met: HTTP accept, 64" in result.stdout
    assert CliRunner().invoke(app, [str(tmp_path / "a"), str(tmp_path / "a")]).exit_code == 0


def test_a_stored_run_is_shown_again(tmp_path):
    folder.write(a_whole_run(), tmp_path)
    result = CliRunner().invoke(app, [str(tmp_path)])
    assert result.exit_code == 0
    assert result.stdout == (tmp_path / "table.txt").read_text(encoding="utf-8")


def test_a_folder_without_a_run_ends_with_2_and_one_sentence(tmp_path):
    result = CliRunner().invoke(app, [str(tmp_path)])
    assert result.exit_code == 2
    assert "Name a folder that the bench wrote" in result.stderr


def row(text: str, beginning: str) -> str:
    """The first line that begins so."""
    return next(line for line in text.splitlines() if line.strip().startswith(beginning))
