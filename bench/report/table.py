"""What a run found, as tables for a terminal, and as plain text where there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from bench.figures import Figure, Measure, Unit
from bench.report.goals import Judged, Verdict, judge_all
from bench.report.groups import Group, Key, by_process, groups_of, spread_of
from bench.report.run import Run
from bench.report.sources import Found
from bench.report.words import BROKEN, FAULTS, LATENCIES, NONE, OTHERS, number, spread
from bench.subjects import floor_of
from service.cli.output import facts_table, table

UNITS: tuple[Unit, ...] = ("requests", "reservations", "messages", "orders", "rows")
"""In the order of their columns; another unit comes after them."""

TITLES = {
    Measure.FLOOR: "Floors: what anything must cost on this machine",
    Measure.ACCEPT: "Accepted, at full speed",
    Measure.ACCEPT_AT_RATE: "Accepted, at a rate set by a clock",
    Measure.REJECT: "Refused: sold out",
    Measure.DRAIN: "Orders drained into SQL",
    Measure.PAYMENT: "Payments",
    Measure.EXPIRY: "Unpaid orders cancelled and back on sale",
    Measure.RUSH: "A rush for few units",
    Measure.HOSTILE: "Among hostile clients",
    Measure.SOAK: "Over a long time",
    Measure.KILLED: "While a process was killed",
}

_MARKS = {
    Verdict.MET: Text("✓", style="green"),
    Verdict.MISSED: Text(BROKEN, style="bold red"),
    Verdict.NOT_MEASURED: Text(NONE),
}
UNBOUNDED = 10_000
"""Characters: wider than any table, so that asking for its width never narrows it."""


def tables(run: Run) -> Iterator[Table]:
    """All of them, in the order in which they are read; none is empty."""
    groups = _by_subject(groups_of(run.figures))
    yield facts_table("The run", _about(run))
    for measure in Measure:
        of_it = [group for group in groups if group.key.measure is measure]
        if of_it:
            yield measure_table(measure, of_it, groups)
    if run.facts:
        yield _facts(run)
    if any(figure.usage for figure in run.figures):
        yield usage_table(groups)
    if any(figure.servers for figure in run.figures):
        yield servers_table(groups)
    if any(figure.note for figure in run.figures):
        yield notes_table(groups)
    yield goals_table(judge_all(run))


def _by_subject(groups: Sequence[Group]) -> list[Group]:
    """Subjects in the order in which they first come, each by its clients."""
    places = {subject: place for place, subject in enumerate(dict.fromkeys(it.key.subject for it in groups))}
    return sorted(groups, key=lambda it: (places[it.key.subject], it.key.clients))


def show(run: Run, console: Console) -> None:
    print_whole(tables(run), console)


def print_whole(made: Iterable[Table], console: Console) -> None:
    """On a terminal that is too narrow lines run over: a number that is cut off would be another number."""
    if not console.is_terminal:
        console.out(plain(made), end="")
        return
    for each in made:
        if (least := _least(each, console)) > console.width:
            each.width = least
        console.print(each, crop=False)


def plain(made: Iterable[Table]) -> str:
    """Without colours, as wide as it must be, without spaces at the ends of lines."""
    console = Console(width=UNBOUNDED, color_system=None, force_terminal=False, highlight=False)
    with console.capture() as caught:
        for each in made:
            console.print(each, crop=False)
    return "\n".join(line.rstrip() for line in caught.get().splitlines()) + "\n"


def _least(made: Table, console: Console) -> int:
    """So narrow that only words fold that may; rich itself would go on and cut."""
    options = console.options.update(width=UNBOUNDED)
    for column in made.columns:
        if column.no_wrap:
            whole = (column.header, *column.cells)
            column.min_width = max(Measurement.get(console, options, cell).maximum for cell in whole)
    return Measurement.get(console, options, made).minimum


def _about(run: Run) -> dict[str, object]:
    return {
        "started": f"{run.started_at:%Y-%m-%d %H:%M} UTC",
        "machine": run.machine,
        "repeats": f"{run.repeats}; a figure is the median (least–most), an audit the worst",
        **dict(sorted(run.versions.items())),
        **({"not watched": "\n".join(run.unwatched)} if run.unwatched else {}),
    }


def measure_table(measure: Measure, of_it: Sequence[Group], all_groups: Sequence[Group]) -> Table:
    """One row a subject and number of clients; a column for each unit, so that none is read as another."""
    units = units_of(of_it)
    floors = [times_floor(group, all_groups) for group in of_it]
    varied = any(group.key.variant for group in of_it)
    audited = any(group.audits for group in of_it)
    left = ["subject", *(["how"] if varied else [])]
    right = [
        "clients",
        *(f"{unit}/s" for unit in units),
        *(["× floor"] if any(floors) else []),
        *LATENCIES,
        *(FAULTS if audited else ()),
    ]
    made = table(TITLES[measure], [*left, *right], (), right=right, whole_words=left)
    for group, floor in zip(of_it, floors, strict=True):
        made.add_row(
            *_start(group.key, varied),
            *(spread(group.rates) if unit == group.key.unit else "" for unit in units),
            *([floor] if any(floors) else []),
            *(spread(group.latency_ms(rank)) for rank in LATENCIES.values()),
            *(_faults(group) if audited else ()),
        )
    made.caption = f"{_floors_named(measure, of_it)}\n" if any(floors) else None
    made.caption_justify = "left"
    return made


def units_of(groups: Iterable[Group]) -> list[Unit]:
    """Those that occur, the known ones first."""
    occurring = {group.key.unit for group in groups}
    return [unit for unit in UNITS if unit in occurring] + sorted(occurring.difference(UNITS))


def times_floor(group: Group, all_groups: Iterable[Group]) -> str:
    """Of its floor at the same number of clients; "" where there is none. A drain has no clients: the best floor."""
    measure, floor = group.key.measure, floor_of(group.key.subject, group.key.measure)
    rates = [
        other.rate_per_s
        for other in all_groups
        if (other.key.subject, other.key.measure) == (floor, Measure.FLOOR)
        and (measure is Measure.DRAIN or other.key.clients == group.key.clients)
    ]
    return f"{group.rate_per_s / max(rates):.2f}" if rates and max(rates) > 0 else ""


def _floors_named(measure: Measure, groups: Iterable[Group]) -> str:
    floors = (floor_of(group.key.subject, measure) for group in groups)
    named = " or ".join(dict.fromkeys(floor for floor in floors if floor is not None))
    return f"× floor: of {named}" + (", at its best" if measure is Measure.DRAIN else ", with as many clients")


def _start(key: Key, varied: bool) -> Iterator[str]:
    yield key.subject
    if varied:
        yield key.variant or NONE
    yield f"{key.clients:,}"


def _faults(group: Group) -> Iterator[Text]:
    """A count that should be none is marked, so that it is seen without colours too."""
    for count in FAULTS.values():
        found = group.worst(count)
        text = NONE if found is None else f"{BROKEN} {found:,}" if found else "0"
        yield Text(text, style="bold red" if found else "")


def _facts(run: Run) -> Table:
    values: dict[tuple[str, str, str], list[float]] = {}
    for fact in run.facts:
        values.setdefault((fact.subject, fact.name, fact.unit), []).append(fact.value)
    rows = [(subject, name, spread(spread_of(them)), unit) for (subject, name, unit), them in values.items()]
    columns = ("subject", "what", "value", "unit")
    return table("Single numbers", columns, rows, right=("value",), whole_words=("subject", "what", "unit"))


def usage_table(groups: Iterable[Group]) -> Table:
    """By process: the median of the cores that it used, and the most memory that it had in any repeat."""
    columns, right = ("subject", "measure", "process", "clients", "cores", "MB"), ("clients", "cores", "MB")
    made = table("What processes used", columns, (), right=right, whole_words=columns[:3])
    for group in groups:
        for process, used in by_process(figure.usage for figure in group.figures).items():
            cores, most = median(usage.cores for usage in used), max(usage.resident_mb for usage in used)
            subject, measure = group.key.subject, group.key.measure
            made.add_row(
                subject, measure, process, f"{group.key.clients:,}", f"{cores:.2f}", f"{most:,.1f}" if most else NONE
            )
    return made


def servers_table(groups: Sequence[Group]) -> Table:
    """Cores, one row a measurement: the median of the repeats. The most memory of each server stands below."""
    largest = _largest(figure for group in groups for figure in group.figures)
    left = ("subject", "measure", "how")
    right = ("clients", OTHERS, *largest)
    made = table("Cores that the servers used", (*left, *right), (), right=right, whole_words=left)
    for group in (it for it in groups if it.server_cores):
        cores = (group.other_cores, *map(group.server_cores.get, largest))
        shown = (NONE if used is None else f"{used:.2f}" for used in cores)
        key = group.key
        made.add_row(key.subject, key.measure, key.variant or NONE, f"{key.clients:,}", *shown)
    memory = ", ".join(f"{server} {most:,.0f}" for server, most in largest.items())
    made.caption = f"{OTHERS}: the processes of the table above together. Most MB in memory: {memory}\n"
    made.caption_justify = "left"
    return made


def _largest(figures: Iterable[Figure]) -> dict[str, float]:
    """By server, the most megabytes that it ever had."""
    by_server = by_process(figure.servers for figure in figures)
    return {server: max(usage.resident_mb for usage in used) for server, used in by_server.items()}


def notes_table(groups: Iterable[Group]) -> Table:
    """What is to be known of a figure beside its numbers, each said once."""
    columns = ("subject", "measure", "clients", "note")
    made = table("Notes", columns, (), right=("clients",), whole_words=("subject", "measure"))
    for group in groups:
        for note in dict.fromkeys(figure.note for figure in group.figures if figure.note):
            made.add_row(group.key.subject, group.key.measure, f"{group.key.clients:,}", note)
    return made


def goals_table(judged: Sequence[Judged]) -> Table:
    counts = ", ".join(f"{sum(it.verdict is verdict for it in judged)} {verdict}" for verdict in Verdict if judged)
    columns = ("", "goal", "wanted", "found", "held against", "ratio")
    made = table(f"Goals: {counts}", columns, (), right=("ratio",), whole_words=columns[:1])
    for it in judged:
        made.add_row(_MARKS[it.verdict], it.goal.what, it.goal.wanted, _found(it.found), _against(it), _ratio(it))
    return made


def _found(found: Found | None) -> str:
    if found is None:
        return "not measured"
    missing = f" ({', '.join(found.missing)}: not measured)" if found.missing else ""
    return f"{number(found.value)} {found.unit}{f', {found.of}' if found.of else ''}{missing}"


def _against(judged: Judged) -> str:
    """The other number; the bound itself where there is no other."""
    if judged.beside is not None:
        return _found(judged.beside)
    if judged.limit is None:
        return "not measured" if judged.found is not None else NONE
    return f"{judged.limit:,g}"


def _ratio(judged: Judged) -> str:
    found, beside = judged.found, judged.beside
    return f"{found.value / beside.value:.2f}" if found and beside and beside.value > 0 else ""
