"""What a run found as SVG pictures: lines of rates by clients, bars of all sellers beside each other, latencies.

Drawn by pygal, of the extra `bench`. A picture stands alone: no script, no font or style from elsewhere. The same run
gives the same bytes.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bench.figures import Measure, Unit
from bench.report.groups import Group, groups_of
from bench.report.run import Run
from bench.report.table import TITLES, units_of
from bench.report.words import BROKEN, LATENCIES, OTHERS, P50, P99, faults_of, number
from bench.subjects import is_ours

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from pygal.graph.graph import Graph

BESIDE_CLIENTS = 64
"""At so many clients everything that sells is measured."""
BY_CLIENTS = (Measure.FLOOR, Measure.ACCEPT, Measure.REJECT)
OWN, OTHER, BAD = "#2f6f9f", "#9aa5b1", "#c62828"
COLOURS = (OWN, "#d98e04", "#2e8b72", "#7e57a6", "#5d4037", "#00838f", "#8d9a1e", "#546e7a")
"""Of lines and pairs of bars. Red is not among them: it says that something was sold wrongly."""
WIDTH, HEIGHT = 1_100, 600
HEAD, ROW = 140, 36
"""Heights of a picture of bars, in pixels: what is around them, and one bar."""


SEEN_CORES = 0.1
"""About as wide as its number: less is too thin to write on, and a server that never used so much has no part."""


class NoPictures(Exception):
    """They cannot be drawn here; the message says what to do."""


def pictures(run: Run) -> dict[str, bytes]:
    """SVG by file name. Raises NoPictures."""
    try:
        import pygal  # noqa: PLC0415 # the extra may be missing, and tables need none of it
    except ImportError:
        raise NoPictures(
            "No pictures were drawn: pygal is missing. `pip install --editable '.[bench]'` brings it; then"
            " `python -m bench.report FOLDER --draw` draws those of a stored run."
        ) from None
    # It hangs a finder for its plugins among all imports, of a kind that Python has given up: others trip over it.
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, pygal.PluginImportFixer)]
    return dict(_all(groups_of(run.figures)))


def _all(groups: Sequence[Group]) -> Iterator[tuple[str, bytes]]:
    for measure in BY_CLIENTS:
        of_it = [group for group in groups if group.key.measure is measure]
        for unit in units_of(of_it):
            lines = _lines([group for group in of_it if group.key.unit == unit])
            if lines:
                yield f"rate-{measure}-{_file_name(unit)}.svg", _rates(measure, unit, lines)
    beside = [it for it in groups if (it.key.measure, it.key.clients) == (Measure.ACCEPT, BESIDE_CLIENTS)]
    for unit in units_of(beside):
        bars = [group for group in beside if group.key.unit == unit]
        yield f"sellers-{_file_name(unit)}.svg", _sellers(unit, bars)
    timed = [group for group in beside if group.latency_ms(LATENCIES[P50]) is not None]
    if timed:
        yield "latency.svg", _latencies(timed)
    watched = [group for group in beside if group.server_cores and group.other_cores is not None]
    if watched:
        yield "cores.svg", _cores(watched)


def _lines(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """By subject, in the order of their clients; only those with two points or more make a line."""
    found: dict[str, list[Group]] = {}
    for group in sorted(groups, key=lambda it: it.key.clients):
        found.setdefault(group.key.subject, []).append(group)
    return {subject: line for subject, line in found.items() if len(line) > 1}


def _rates(measure: Measure, unit: Unit, lines: dict[str, list[Group]]) -> bytes:
    import pygal  # noqa: PLC0415

    clients = sorted({group.key.clients for line in lines.values() for group in line})
    title = f"{TITLES[measure]}: {unit}/s by clients"
    chart = pygal.XY(**_config(title), x_title="clients", y_title=f"{unit}/s", include_x_axis=True)
    # pygal has no logarithmic x: the places are logarithms, and the labels say of what.
    chart.x_labels = [{"label": f"{count:,}", "value": math.log2(count)} for count in clients]
    for subject, line in lines.items():
        chart.add(_legend(subject, line), [(math.log2(it.key.clients), it.rate_per_s) for it in line])
    return _svg(chart)


def _legend(subject: str, line: Sequence[Group]) -> str:
    broken = any(faults_of(group) for group in line)
    return f"{BROKEN} {subject}" if broken else subject


def _sellers(unit: Unit, groups: Sequence[Group]) -> bytes:
    """The fastest on top, Dropgate in its own colour. What sold wrongly is red, and says how much."""
    import pygal  # noqa: PLC0415

    slowest_first = sorted(groups, key=lambda it: it.rate_per_s)
    title = f"{TITLES[Measure.ACCEPT]}: {unit}/s with {BESIDE_CLIENTS} clients"
    chart = pygal.HorizontalBar(**_config(title, rows=len(groups)), show_legend=False, print_values=True)
    chart.x_labels = [_seller(group) for group in slowest_first]
    chart.add(f"{unit}/s", [_bar(group) for group in slowest_first])
    return _svg(chart)


def _seller(group: Group) -> str:
    faults = faults_of(group)
    return f"{BROKEN} {group.key.subject}: {faults}" if faults else group.key.subject


def _bar(group: Group) -> dict[str, object]:
    own = OWN if is_ours(group.key.subject) else OTHER
    return {"value": group.rate_per_s, "color": BAD if faults_of(group) else own, "label": _seller(group)}


def _latencies(groups: Sequence[Group]) -> bytes:
    import pygal  # noqa: PLC0415

    slowest_first = sorted(groups, key=lambda it: -_ms(it, P50))
    title = f"From the request to its answer, ms, with {BESIDE_CLIENTS} clients"
    chart = pygal.HorizontalBar(**_config(title, rows=2 * len(groups)), print_values=True)
    chart.x_labels = [_seller(group) for group in slowest_first]
    for name in (P50, P99):
        chart.add(name, [_ms(group, name) for group in slowest_first])
    return _svg(chart)


def _cores(groups: Sequence[Group]) -> bytes:
    """Who used how much of the machine, the fastest on top."""
    import pygal  # noqa: PLC0415

    slowest_first = sorted(groups, key=lambda it: it.rate_per_s)
    title = f"Cores used while {BESIDE_CLIENTS} clients buy"
    chart = pygal.HorizontalStackedBar(**_config(title, rows=len(groups)), print_values=True)
    chart.x_labels = [_seller(group) for group in slowest_first]
    chart.add(OTHERS, [_part(group.other_cores) for group in slowest_first])
    seen = (it for group in slowest_first for it, cores in group.server_cores.items() if cores >= SEEN_CORES)
    for server in dict.fromkeys(seen):
        chart.add(server, [_part(group.server_cores.get(server)) for group in slowest_first])
    return _svg(chart)


def _part(cores: float | None) -> dict[str, object] | None:
    if cores is None:
        return None
    return {"value": cores} if cores >= SEEN_CORES else {"value": cores, "formatter": lambda _: ""}


def _ms(group: Group, name: str) -> float:
    found = group.latency_ms(LATENCIES[name])
    return 0.0 if found is None else found.median


def _config(title: str, *, rows: int | None = None) -> dict[str, Any]:
    """`rows`: as high as so many bars need."""
    from pygal.style import Style  # noqa: PLC0415

    return {
        "title": title,
        "width": WIDTH,
        "height": HEIGHT if rows is None else HEAD + ROW * rows,
        "js": [],
        "style": Style(
            background="white",
            plot_background="white",
            font_family="sans-serif",
            colors=COLOURS,
            guide_stroke_color="#dddddd",
            major_guide_stroke_color="#bbbbbb",
            opacity="0.9",
        ),
        "value_formatter": lambda value: number(float(value)),
        "truncate_label": -1,
        "truncate_legend": -1,
        "legend_at_bottom": True,
        "legend_at_bottom_columns": 2,
        "explicit_size": True,
    }


def _svg(chart: Graph) -> bytes:
    chart.uuid = re.sub(r"\W+", "-", chart.config.title)  # drawn by chance otherwise
    chart.add_xml_filter(_bare)
    drawn: bytes = chart.render()
    return drawn


def _bare(root: Element) -> Element:
    """pygal puts a script with its settings into each picture, whatever `js` is, and comments with today's date."""
    for parent in list(root.iter()):
        for child in list(parent):
            if callable(child.tag) or child.tag.endswith("script"):
                parent.remove(child)
    return root


def _file_name(unit: Unit) -> str:
    return re.sub(r"\W+", "-", unit)
