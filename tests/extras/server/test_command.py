"""``judgetrain serve`` as users start it: with a model, a token, and what the documentation says."""

import json
import logging
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from judgetrain.data import world
from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.errors import ConfigError, EngineError
from judgetrain.extras.server.client import RemoteJudge
from judgetrain.extras.server.serve import serve
from judgetrain.judges import load_judge
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.saved import save_settings
from judgetrain.pipeline.run import Pipeline
from tests.builders.browser import Browser, needs_chromium
from tests.builders.pipeline import configured
from tests.builders.served import COMMAND, Served, served

TOKENS = {"criteria_tokens": 24, "guideline_tokens": 12, "judgment_tokens": 24}
"""The model is not trained as a judge: what it writes is as good at any length."""
SECRET = "a-token-of-this-test"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("served") / "judge"
    shutil.copytree(Path(world.__file__).parent / "base", directory)
    load_prompt_set("compact").save(directory)
    save_settings(JudgeConfig(), directory, 10)
    return directory


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Served]:
    token_limits = [f"judge.{name}={number}" for name, number in TOKENS.items()]
    command = [*COMMAND, f"serve.judge={model}+sampled@2", "serve.port=0"]
    command += ["judge.aggregation=vote", "judge.early_stop=false"]  # as load_judge; the recipe says otherwise
    command += [*token_limits, f"output_dir={model.parent / 'out'}", "prompts=compact"]
    with served(command, model.parent / "log", JUDGETRAIN_TOKEN=SECRET) as running:
        yield running


def test_64_clients_get_what_offline_judging_says_of_the_same_rows(server: Served, model: Path) -> None:
    # Two seeds are among them, whatever batches their rows are put into.
    rows = eval_comparisons(WorldConfig(eval_comparisons=12), seed=5)
    offline = {seed: load_judge(f"{model}+sampled", 2, **TOKENS).compare_batch(rows, seed) for seed in (3, 4)}
    assert len({reason.text for row in offline[3] for reason in row.reasons}) > 10, "it samples"

    def client(index: int) -> None:
        with RemoteJudge(server.url, SECRET) as judge:
            [prediction] = judge.compare_batch([rows[index % 12]], 3 + index % 2)
        expected = offline[3 + index % 2][index % 12]
        assert prediction == expected and prediction.reasons == expected.reasons

    with ThreadPoolExecutor(64) as clients:
        list(clients.map(client, range(64)))


def test_refusals_reach_the_client_and_no_log_shows_the_token(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    client = httpx2.Client(base_url=server.url, trust_env=False, headers={"Authorization": f"Bearer {SECRET}"})
    assert client.post("/v1/judge", json={"prompt": "p"}).json()["error"]["field"] == "response_a"
    assert client.post("/v1/judge", content=b"x" * (9 * 2**20)).status_code == 413
    assert httpx2.post(f"{server.url}/v1/judge", json={}, trust_env=False).status_code == 401
    with RemoteJudge(server.url, "wrong") as judge, pytest.raises(EngineError, match="401: a token is needed"):
        judge("p", "a", "b")
    with caplog.at_level(logging.INFO), RemoteJudge(server.url, SECRET) as judge:
        judge("p", "a", "b")
    assert "/v1/judge" in caplog.text and SECRET not in caplog.text + server.log


@needs_chromium
def test_the_page_of_the_command_judges_with_a_model(server: Served) -> None:
    with Browser() as browser:
        browser.open(server.url)
        typed = {"prompt": "explain gravity .", "response_a": "a", "response_b": "b", "token": SECRET}
        for name, text in typed.items():
            browser.value(f"document.querySelector('[name={name}]').focus()")
            browser.write(text)
        browser.press("Enter")
        browser.wait("document.querySelector('#said dl')")
        page_text = browser.text("#said")
    assert re.search(r"Cost\n[\d,]+ tokens read, [\d,]+ written, \d+ calls, \d+\.\d s", page_text), page_text


def test_the_documentation_s_commands_do_what_it_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "using.md").read_text(encoding="utf-8")
    section = page.partition("## Serve")[2].partition("\n## ")[0]
    # What else the section shows is asked in test_systemone, of a judge that scores.
    start, curl, *_others = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    words = shlex.split(start.replace("\\\n", " "))
    assert words[:5] == ["python", "-m", "judgetrain", "serve", "serve.judge=./my-judge"]
    command = [*COMMAND, "serve.judge=longer", *words[5:], "serve.port=0", f"output_dir={tmp_path / 'out'}"]
    with served(command, tmp_path / "log") as server:
        curl_words = shlex.split(curl.replace("\\\n", " ").replace("http://127.0.0.1:8765", server.url))
        quiet = [curl_words[0], "-s", "--noproxy", "*", *curl_words[1:]]
        answer = subprocess.run(quiet, capture_output=True, check=True, timeout=300)
        reply = json.loads(answer.stdout)
        assert reply["verdict"] in ("A", "B") and reply["reasons"] == []
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 0, server.log


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["serve.judge=dpo"], r"serve.judge='dpo': none in .* has these settings: run `judgetrain stage=dpo`"),
        (["serve.judge=nobody"], r"serve.judge='nobody'"),
        (["serve.judge=scorer:probdiff"], "depends on what is judged with it"),
        (["serve.judge=longer", "serve.reward=score"], "serve.reward=score: .*: set judge.reads=one"),
        (["serve.judge=base", "serve.reward=score"], "serve.reward=score: .*: set judge.reads=one"),
        (["serve.judge=longer", "serve.host=203.0.113.7"], "cannot listen there"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_is_loaded(
    tmp_path: Path, overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        serve(Pipeline(configured(*overrides, f"output_dir={tmp_path}")))
