"""Pages: whatever is put into a template stays text, nothing is left out silently, and no template goes around it."""

import re
from pathlib import Path

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment, FileSystemLoader

import judgetrain
from judgetrain.artifacts.pages import BOTTOM, LEFT, RIGHT, SHARED, TOP, Chart, Point, render
from tests.builders.pages import parse

TEMPLATES = sorted(Path(judgetrain.__file__).parent.rglob("templates/*"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("room") / "mine.html"
    path.write_text('{% extends "base.html" %}{% block body %}<p title="{{ text }}">{{ text }}</p>{% endblock %}')
    return path


@given(st.text(alphabet="<>&\"'/=!-[]{%}#aonscript \n\ud800\u202e", max_size=40))
def test_values_stay_text_in_a_page_that_loads_nothing(template: Path, text: str) -> None:
    page = parse(render(template, title=text, text=text))
    [paragraph] = page.all("p")
    clean = text.encode("utf-8", "replace").decode()
    assert paragraph.text() == paragraph.attributes["title"] == page.all("title")[0].text() == clean
    assert page.all("meta")[1].attributes["content"] == "default-src 'none'; style-src 'unsafe-inline'"
    [style] = page.all("style")
    assert "url(" not in style.text() and "@import" not in style.text()


def test_a_value_that_is_missing_is_an_error(template: Path) -> None:
    with pytest.raises(jinja2.UndefinedError, match="'text' is undefined"):
        render(template, title="t")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: f"{path.parents[1].name}/{path.name}")
def test_no_template_switches_escaping_off_or_brings_a_style_of_its_own(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "safe" not in text.replace("unsafe-inline", "") and "autoescape" not in text
    assert path.suffix == ".css" or text.count("<style") == (path.name == "base.html")


SHARE = st.floats(0, 1)
POINTS = st.lists(st.tuples(st.floats(0.5, 2000), SHARE, SHARE, SHARE), min_size=1, max_size=6)

ENVIRONMENT = Environment(loader=FileSystemLoader(SHARED), autoescape=True)


def drawing(drawn: Chart) -> str:
    """Return the chart's SVG."""
    return str(ENVIRONMENT.get_template("charts.html").module.figure(drawn))  # type: ignore[attr-defined]


@given(st.dictionaries(st.text(max_size=5), POINTS, min_size=1, max_size=3))
def test_points_lie_in_the_frame(series: dict[str, list[tuple[float, ...]]]) -> None:
    drawn = {
        name: [Point(x, sorted((a, b, c))[1], "<&\"'>", (min(a, b, c), max(a, b, c))) for x, a, b, c in points]
        for name, points in series.items()
    }
    svg = drawing(Chart(title="<x>", x_label="<x>", series=drawn))
    for x, y in re.findall(r'<circle class="c\d" cx="([\d.-]+)" cy="([\d.-]+)"', svg):
        assert LEFT - 0.1 <= float(x) <= RIGHT + 0.1
        assert TOP - 0.1 <= float(y) <= BOTTOM + 0.1
    assert svg.count("<circle") == sum(map(len, drawn.values())) and svg.count("<polyline") == len(drawn)
    assert "<x>" not in svg and "<&" not in svg


def test_places_by_hand() -> None:
    line = [Point(0.0, 0.5), Point(1.0, 1.0)]
    svg = drawing(Chart(title="t", x_label="x", series={"a": line}, ticks=[0.0, 1.0]))
    assert f'cx="{LEFT:.1f}" cy="{(TOP + BOTTOM) / 2:.1f}"' in svg
    assert f'cx="{RIGHT:.1f}" cy="{TOP:.1f}"' in svg


@given(st.lists(st.lists(st.floats(-900, -0.001), max_size=5), min_size=1, max_size=7).filter(any))
def test_lines_of_plain_values_fill_the_frame(lines: list[list[float]]) -> None:
    series = {str(i): [Point(n, y) for n, y in enumerate(line)] for i, line in enumerate(lines)}
    svg = drawing(Chart(title="<x>", x_label="<x>", series=series, plain=True))
    drawn = [
        [tuple(map(float, p.split(","))) for p in points.split()] for points in re.findall(r'points="([^"]*)"', svg)
    ]
    assert [len(line) for line in drawn] == [len(line) for line in lines] and "<circle" not in svg and "<x>" not in svg
    assert all(LEFT <= x <= RIGHT and TOP <= y <= BOTTOM for line in drawn for x, y in line)
    ys = {
        y: place for line, places in zip(lines, drawn, strict=True) for y, (_, place) in zip(line, places, strict=True)
    }
    assert ys[min(ys)] == BOTTOM and (len(ys) == 1 or ys[max(ys)] == TOP)
