"""The page of a served judge, in a real browser: by the keyboard, with a token, light, dark and on a phone."""

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import uvicorn

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.engine import WorldEngine
from judgetrain.extras.server.app import create_app
from judgetrain.extras.server.config import ServeConfig
from judgetrain.extras.server.service import Service
from judgetrain.judges import BranchingJudge, Judge, LongerJudge
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.predictions import Reason
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.schema import Reads
from tests.builders.browser import DESK, PHONE, Browser, needs_chromium
from tests.builders.served import free_port

pytestmark = needs_chromium
SECRET = "a-token-of-this-test"
ATTACK = "<script>document.title = 'hacked'</script><img src=x onerror=\"document.title = 'hacked'\">"
ROW = eval_comparisons(WorldConfig(eval_comparisons=2), seed=5)[1]
RESULT = "document.querySelector('#said h2, #said .bad')"


def world_judge(reads: Reads) -> BranchingJudge:
    engine = WorldEngine(WorldEngineConfig())
    return BranchingJudge(engine, load_prompt_set("compact"), JudgeOptions(branches=2, reads=reads), name="mine")


JUDGES = {"one": partial(world_judge, "one"), "two": partial(world_judge, "two"), "no criteria": LongerJudge}


@pytest.fixture(scope="module", params=JUDGES.values(), ids=JUDGES)
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, Judge]]:
    judge: Judge = request.param()
    token = SECRET if judge.goes_by_criteria else None
    app = create_app(Service(judge, ServeConfig(), 17), token)
    server = uvicorn.Server(uvicorn.Config(app, port=free_port(), log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{server.config.port}/", judge
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


def trouble(browser: Browser) -> list[object]:
    """Return what the page asked for elsewhere, and errors of its script."""
    urls = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    errors = [e for e in browser.events if e["method"] == "Runtime.exceptionThrown"]
    return [*errors, *(url for url in urls if not url.startswith("http://127.0.0.1:"))]


def head_of(reason: Reason) -> str:
    """Return what stands above a judgment's text."""
    a, b = (f"{side} {score:g}" for side, score in (("A", reason.score_a), ("B", reason.score_b)) if score is not None)
    if len(reason.order) == 1:
        return f"{a if reason.order == 'A' else b}\n{reason.order} by itself\n"
    verdict = {"A": "A is better", "B": "B is better", "tie": "tie"}[reason.verdict or ""]
    return f"{a} : {b} {verdict}\n{reason.order[0]} shown first\n"


def test_a_person_judges_with_the_keyboard_alone(served: tuple[str, Judge], browser: Browser) -> None:
    address, judge = served
    browser.open(address)
    texts = ROW.dialogue.query, f"{ROW.response_a} {ATTACK}", ROW.response_b
    criteria = ["numbers: states the amounts", f"source: backs the claims {ATTACK}"]
    how: dict[str, Any] = (
        {"criteria": criteria, "reference": "twelve pieces .", "seed": 17} if judge.goes_by_criteria else {}
    )
    expected = judge(*texts, **how)
    for text in texts:
        browser.press("Tab")
        while browser.value("document.activeElement.tagName") == "A":  # the link above the form
            browser.press("Tab")
        browser.write(text)
    if judge.goes_by_criteria:
        browser.press("Tab")
        browser.press("Space")  # unfolds
        for text in (f"1. {criteria[0]}\n2. {criteria[1]}", "twelve pieces .", SECRET):
            browser.press("Tab")
            browser.write(text)
        browser.press("Enter")
    else:
        browser.press("Enter", control=True)
    browser.wait(RESULT)
    page_text = browser.text("#said")
    verdict = {"A": "A is better", "B": "B is better", "tie": "tie"}[expected.verdict]
    alone = expected.reasons != () and expected.reasons[0].order == "A"
    orders = "Orders\nnone: " if alone else f"A shown first\n{verdict}\nB shown first\n{verdict}\n"
    assert page_text.startswith(f"{verdict}\n{orders}"), page_text
    if judge.goes_by_criteria:
        shown = browser.value("[...document.querySelectorAll('.criterion h3 .text')].map(e => e.innerText)")
        assert shown == criteria
        cards = browser.value("[...document.querySelectorAll('.criterion .card')].map(e => e.innerText)")
        heads = {(r.criterion, r.order): head_of(r) for r in expected.reasons}
        headings = [heads[c, order] for c in criteria for order in (("A", "B") if alone else ("AB", "BA"))]
        assert [card[: len(head)] for card, head in zip(cards, headings, strict=True)] == headings
        assert all("Analysis" in card for card in cards), "the reason, without a click"
        spent = expected.whole_cost
        tokens = f"{spent.prompt_tokens:,.0f} tokens read, {spent.generated_tokens:.0f} written"
        assert f"Cost\n{tokens}" in page_text and page_text.count("yours") == 2
    assert browser.value("document.title") == "Judge" and browser.value("document.images.length") == 0
    assert trouble(browser) == []


@pytest.mark.parametrize(("width", "dark"), [(DESK, False), (PHONE, True)])
def test_one_response_is_scored_and_a_wrong_token_is_told(
    served: tuple[str, Judge], browser: Browser, width: int, dark: bool
) -> None:
    address, judge = served
    browser.open(address, width, dark)
    browser.value("document.querySelector('[name=prompt]').focus()")
    browser.write(ROW.dialogue.query)
    browser.value("document.querySelector('[name=response_a]').focus()")
    browser.write(ROW.response_a)
    if judge.goes_by_criteria:
        browser.value("document.querySelector('[name=token]').focus()")
        browser.write("wrong")
        browser.press("Enter")
        browser.wait(RESULT)
        assert "a token is needed" in browser.text("[role=alert]")
        browser.value("document.querySelector('[name=token]').value = ''")
        browser.write(SECRET)
    browser.value("document.querySelector('form').requestSubmit()")
    browser.wait(f"{RESULT} && !document.querySelector('#said').innerText.includes('a token is needed')")
    page_text = browser.text("#said")
    refused = {"mine": "mine reads two responses at a time", "longer": "longer compares two responses"}
    one = isinstance(judge, BranchingJudge) and judge.options.reads == "one"
    assert page_text.startswith("Score " if one else refused[judge.name]), page_text
    assert browser.value("document.documentElement.scrollWidth") <= width
    colours = browser.value("['color', 'backgroundColor'].map(c => getComputedStyle(document.body)[c])")
    assert colours == (["rgb(228, 232, 238)", "rgb(20, 23, 27)"] if dark else ["rgb(27, 31, 36)", "rgb(255, 255, 255)"])
    assert trouble(browser) == []
