"""Pages: whatever is put into a template stays text, nothing is left out silently, and no template goes around it."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

import judgetrain
from judgetrain.artifacts.pages import render
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
    [found] = page.all("p")
    clean = text.encode("utf-8", "replace").decode()
    assert found.text() == found.attributes["title"] == page.all("title")[0].text() == clean
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
