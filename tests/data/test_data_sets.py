"""The data sets of the branching paper's table 5, each in its published shape, from a repository's files and alone."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from judgetrain.artifacts.losses import Losses
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import DialoguesConfig, DialogueSourceConfig, catalogue, described
from judgetrain.data.responses import pair
from judgetrain.data.rows.reader import RowReader
from judgetrain.errors import ConfigError, DataError
from judgetrain.pipeline.config import Config
from judgetrain.schema import Dialogue
from tests.builders.data import run_dialogues
from tests.builders.pipeline import check_stage
from tests.builders.pipeline import configured as composed

Rows = list[dict[str, Any]]


def as_lines(path: Path, rows: Rows) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def as_array(path: Path, rows: Rows) -> None:
    path.write_text(json.dumps(rows, indent=4, ensure_ascii=False), encoding="utf-8")


def as_parquet(path: Path, rows: Rows) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


ROWS = yaml.safe_load((Path(__file__).parent / "published_dialogues.yaml").read_text(encoding="utf-8"))
CONVAI2 = (
    "1 your persona: i like to ski.\n"
    "2 your persona: i hate mexican food.\n"
    "3 hi , how are you ?\ti am fine . do you ski ?\t\thello|i ski|i am fine . do you ski ?\n"
    "4 only in winter .\tme too !\t\tno|me too !\n"
    "1 your persona: i have a dog.\n"
    "2 __SILENCE__\thello , what do you do ?\t\thi|hello , what do you do ?\n"
    "3 i am a nurse .\tgood for you .\t\tgood for you .\n"
)


def wmt19(code: str, text: str) -> Rows:
    return [{"translation": {code: text, "en": "There is no way back."}}]


Write = Callable[[Path, Rows], None]
PUBLISHED: dict[str, tuple[str, Write, Rows, Dialogue | tuple[Any, ...]]] = {
    # data set: file in the repository, how it is written, rows, (id, query, turns before it, reference, category)
    "flan_v2": ("cot_zs_opt_train.jsonl.gz", as_lines, ROWS["FLAN"],
                ("0000001", ROWS["FLAN"][0]["inputs"], 0, "180 km", "cot")),
    "gpt4all": ("data/train-00000-of-00001.parquet", as_parquet, ROWS["GPT4ALL"],
                ("0000001", ROWS["GPT4ALL"][0]["prompt"], 0, "A tuple …", "")),
    "gpteacher": ("gpt4-instruct-similarity-0.6-dataset.json", as_array, ROWS["GPTEACHER"],
                  ("0000001", "Write a riddle about time.", 0, "What flies without wings?", None)),
    **{f"gpteacher_{module}": (file, as_array, [{"instruction": asked, "input": more, "response": said}],
                               ("0000001", f"{asked}\n\n{more}" if more else asked, 0, said, None))
       for module, file, asked, more, said in (
           ("roleplay", "roleplay-simple-deduped-roleplay-instruct.json", "Play a chef.", "", "Bon appétit."),
           ("code", "codegen-instruct.json", "Add the numbers in Haskell.", "1, 2", "sum [1, 2]"),
           ("toolformer", "toolformer-dedupe-only-dataset.json", "toolformer: enabled\npython(code)\nAdd.", "1, 2",
            "python('1 + 2')"))},
    "alpaca": ("data/train-00000-of-00001-a09b74b3ef9c3b56.parquet", as_parquet, ROWS["ALPACA"],
               ("0000001", "Identify the odd one out.\n\nRed, green, Tuesday", 0, "Tuesday", None)),
    "ultrachat": ("train_0.jsonl", as_lines, ROWS["ULTRACHAT"], ("0", "Thanks.", 4, "Any time.", None)),
    "sharegpt": ("ShareGPT_V3_unfiltered_cleaned_split.json", as_array, ROWS["SHAREGPT"],
                 ("QWJhYvA_0", "In one line?", 2, "Focus.", None)),
    "tal_scq5k": ("TAL-SCQ5K-EN/train.jsonl", as_lines, ROWS["TAL"],
                  ("8afc802a", "What is $2+2$?\n\nA. $$3$$\nB. $$4$$", 0, "Count on from two.\nB", None)),
    "tigerbot": ("tigerbot-alpaca-en-50k.json", as_lines, ROWS["TIGERBOT"],
                 ("0000001", "How do I boil an egg?", 0, "Seven minutes.", None)),
    "mt_bench": ("question.jsonl", as_lines, ROWS["MT_BENCH"],
                 ("95", "Now this one.", 1, "It means goodbye.", "roleplay")),
    "vicuna_bench": ("question.jsonl", as_lines, ROWS["VICUNA_BENCH"],
                     ("1", "How can I improve my time management skills?", 0, None, "generic")),
    "alignbench": ("data_v1.1_release.jsonl", as_lines, ROWS["ALIGNBENCH"],
                   ("1", ROWS["ALIGNBENCH"][0]["question"], 0, "高音单簧管和高音萨克斯的调性不同。\n", "专业能力")),
    "alpaca_eval": ("alpaca_eval.json", as_array, ROWS["ALPACA_EVAL"],
                    ("0000001", "How did US states get their names?", 0, "From a variety of sources.", "helpful_base")),
    "xsum": ("default/test/0000.parquet", as_parquet, ROWS["XSUM"],
             ("35232142", "Summarise the following article in one sentence.\n\n" + ROWS["XSUM"][0]["document"], 0,
              "Floods hit a town.", None)),
    "cnn_dailymail": ("3.0.0/test-00000-of-00001.parquet", as_parquet, ROWS["CNN"],
                      ("92c514c9", "Summarise the following news article in a few sentences.\n\n"
                       + ROWS["CNN"][0]["article"], 0, "Man found .\nHe is well .", None)),
    **{f"wmt19_{code}_en": (f"{code}-en/validation-00000-of-00001.parquet", as_parquet, wmt19(code, text),
                            ("0000001", f"Translate the following text from {name} into English. Write the translation "
                             f"alone.\n\n{text}", 0, "There is no way back.", None))
       for code, name, text in (("zh", "Chinese", "没有回头路。"), ("cs", "Czech", "Není cesty zpět."),
                                ("de", "German", "Es gibt kein Zurück."), ("ru", "Russian", "Пути назад нет."))},
    "blog_writing": ("test.json", as_lines, ROWS["BLOG"], ("0000001", "写一篇小红书文案", 0, "标题：🍂秋天", None)),
    "healthbench": ("2025-05-07-06-14-12_oss_eval.jsonl", as_lines, ROWS["HEALTHBENCH"],
                    ("h1", "Monday.", 2, "Rest.", None)),
    **{f"rar_{part}": ("data/train-00000-of-00001.parquet", as_parquet, ROWS["RAR"],
                       ("0000001", "Why does ice float?", 0, "It is less dense.", "forum"))
       for part in ("medicine", "science")},
    "blog_writing_train": ("train.json", as_lines, ROWS["BLOG_TRAIN"], ("0", "写100字", 0, "标题：好", None)),
}  # fmt: skip


def run(tmp_path: Path, source: DialogueSourceConfig, **options: Any) -> tuple[StageRun, list[Dialogue]]:
    out = run_dialogues(tmp_path, DialoguesConfig([described(source, "key")], **options))
    return out, [Dialogue.from_row(r) for r in read_rows(out.directory, "dialogues")]


def summary(dialogue: Dialogue) -> tuple[Any, ...]:
    local = dialogue.id.removeprefix("src:")
    return local, dialogue.query, len(dialogue.messages) - 1, dialogue.reference, dialogue.category


def test_every_data_set_of_the_table_has_an_adapter() -> None:
    assert {*PUBLISHED, "convai2"} == set(catalogue())


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_file_is_read_alone(name: str, tmp_path: Path) -> None:
    file, write, rows, expected = PUBLISHED[name]
    path = tmp_path / Path(file).name
    write(path, rows)
    out, dialogues = run(tmp_path, DialogueSourceConfig(name="src", dataset=name, path=str(path)))
    assert summary(dialogues[0]) == expected
    assert out.notes["sources"]["src"] == {"read": len(rows), "kept": len(rows)}


def test_rubrics_of_prompts_reach_the_comparisons_of_their_answers(tmp_path: Path) -> None:
    expected = {"HEALTHBENCH": [("Asks for fever.", 7.0), ("Advises antibiotics.", -5.0)],
                "RAR": [("Names density.", 5.0), ("Blames salt.", -1.0)]}  # fmt: skip
    for name, dataset in (("HEALTHBENCH", "healthbench"), ("RAR", "rar_science"), ("RAR", None)):
        as_lines(tmp_path / "in.jsonl", ROWS[name])
        source = DialogueSourceConfig(name="src", dataset=dataset, path=str(tmp_path / "in.jsonl"))
        _, dialogues = run(tmp_path, source)
        answers = {model: {d.id: f"{model} answers" for d in dialogues} for model in ("m", "n")}
        comparison = next(pair(dialogues, answers, 1, Losses()))
        assert comparison.rubric is not None and comparison.dialogue.rubric is None
        assert [(c.text, c.weight) for c in comparison.rubric.criteria] == expected[name]
        scored = RowReader(source if dataset is None else described(source, "key")).candidates(
            ROWS[name][0] | {"response": "Because."}, 1
        )
        assert (scored.rubric, scored.dialogue.messages) == (comparison.rubric, dialogues[0].messages)
        assert scored.dialogue.reference == {"HEALTHBENCH": "Rest.", "RAR": "It is less dense."}[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_is_published_is_streamed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``datasets`` reads a directory as a repository of the Hub, and a file as an address."""
    import datasets

    file, write, rows, expected = PUBLISHED[name]
    repository = tmp_path / "repository"
    place = catalogue()[name]["hub"]
    (repository / file).parent.mkdir(parents=True)
    write(repository / file, rows)
    files = place.get("data_files", [""])
    loads = []
    load = datasets.load_dataset
    changed = dict[str, Any]()
    if place["path"] == "json":
        assert len(files) == 1 and files[0].startswith("https://") and files[0].endswith(file)
        opened = "json"
        changed = {"data_files": [str(repository / file)]}
    else:
        opened = str(repository)
        for other in files[1:]:
            write(repository / other, [rows[0] | {"inputs": "Another question?"}])
    if "name" in place:  # a repository's card lists its subsets and splits
        splits = f"[{{split: {place['split']}, path: {file}}}]"
        card = f"---\nconfigs: [{{config_name: {place['name']}, data_files: {splits}}}]\n---\n"
        (repository / "README.md").write_text(card)

    def local(path: str, *arguments: Any, **options: Any) -> Any:
        loads.append((path, options["streaming"], options.get("data_files")))
        return load(opened, *arguments, **options | changed)

    monkeypatch.setattr(datasets, "load_dataset", local)
    source = described(DialogueSourceConfig(name="src", dataset=name), "key")
    assert (source.type, source.path) == ("hub", place["path"])
    _, dialogues = run(tmp_path, DialogueSourceConfig(name="src", dataset=name))
    assert summary(dialogues[0]) == expected
    assert loads == [(place["path"], True, place.get("data_files"))]
    assert len(dialogues) == len(rows) + len(files[1:])


def test_both_questions_of_mt_bench_stay_open_and_the_first_alone_can_be_taken(tmp_path: Path) -> None:
    path = tmp_path / "question.jsonl"
    as_lines(path, ROWS["MT_BENCH"])
    source = DialogueSourceConfig(name="src", dataset="mt_bench", path=str(path))
    _, dialogues = run(tmp_path, source)
    assert [[(m.role, m.content) for m in d.messages] for d in dialogues] == [
        [("user", question) for question in row["turns"]] for row in ROWS["MT_BENCH"]
    ]
    assert [d.reference for d in dialogues] == ["It means goodbye.", None]
    _, first = run(tmp_path / "first", replace(source, turns="first"))
    assert [summary(d) for d in first] == [
        ("95", "Please play the role of a translator.", 0, None, "roleplay"),
        ("81", "Write a travel blog post.", 0, None, "writing"),
    ]
    config = Config(dialogues=DialoguesConfig([described(source, "key")]))
    with pytest.raises(ConfigError, match=r"dialogues\.sources\[0\]\.turns=last: .*set turns: first"):
        check_stage("responses", config)


def test_the_other_direction_of_a_translation(tmp_path: Path) -> None:
    as_parquet(tmp_path / "test.parquet", wmt19("de", "Es gibt kein Zurück."))
    fields = {"query": "Auf Deutsch: {translation.en}", "reference": "translation.de"}
    source = DialogueSourceConfig(name="src", dataset="wmt19_de_en", path=str(tmp_path / "test.parquet"), fields=fields)
    _, (dialogue,) = run(tmp_path, source)
    assert (dialogue.query, dialogue.reference) == ("Auf Deutsch: There is no way back.", "Es gibt kein Zurück.")
    with pytest.raises(DataError, match=r"expected the column 'translation\.fr'"):
        run(tmp_path / "no", replace(source, fields={"query": "{translation.fr}!"}))


def test_convai2_is_read_as_parlai_has_it(tmp_path: Path) -> None:
    (tmp_path / "train_self_original.txt").write_text(CONVAI2)
    path = str(tmp_path / "*.txt")
    _, (first, second) = run(tmp_path, DialogueSourceConfig(name="src", dataset="convai2", path=path))
    assert [(m.role, m.content) for m in first.messages] == [
        ("system", "your persona: i like to ski.\nyour persona: i hate mexican food."),
        ("user", "hi , how are you ?"),
        ("assistant", "i am fine . do you ski ?"),
        ("user", "only in winter ."),
    ]
    assert first.reference == "me too !"
    assert [m.role for m in second.messages] == ["system", "assistant", "user"]
    assert second.reference == "good for you ."
    with pytest.raises(ConfigError, match=r"key\.path is empty: convai2 is not on the Hub"):
        described(DialogueSourceConfig(name="src", dataset="convai2"), "key")


def test_every_turn_of_a_conversation_becomes_a_dialogue_when_asked_for(tmp_path: Path) -> None:
    as_lines(tmp_path / "train_0.jsonl", ROWS["ULTRACHAT"])
    source = DialogueSourceConfig(name="src", dataset="ultrachat", path=str(tmp_path / "train_0.jsonl"), turns="every")
    out, dialogues = run(tmp_path, source)
    assert [summary(d)[:4] for d in dialogues] == [
        ("0#1", "How do tides work?", 0, "The moon pulls."),
        ("0#2", "And the sun?", 2, "It pulls too."),
        ("0", "Thanks.", 4, "Any time."),
    ]
    assert out.totals()["counts"] == {"in": 3, "out": 3, "dropped": {}}


def test_an_unknown_data_set_and_the_users_own_settings() -> None:
    with pytest.raises(ConfigError, match=r"dialogues\.sources\[2\]\.dataset=alpacca: .*known are flan_v2"):
        described(DialogueSourceConfig(dataset="alpacca"), "dialogues.sources[2]")
    source = DialogueSourceConfig(
        dataset="flan_v2", hub={"data_files": ["niv2_zs_opt_train.jsonl.gz"]}, fields={"query": "input"}
    )
    description = described(source, "key")
    assert (description.path, description.hub) == ("SirNeural/flan_v2", {"data_files": ["niv2_zs_opt_train.jsonl.gz"]})
    assert description.fields == {"query": "input", "reference": "targets", "category": "task"}
    assert described(description, "key") == description, "describing twice changes nothing"


def test_the_papers_recipe_names_the_nine_data_sets() -> None:
    config = composed("recipe=paper_dialogues", "data_dir=data")
    named = list(catalogue())
    assert [s.dataset for s in config.dialogues.sources] == named[: named.index("mt_bench")]
    assert {s.type for s in config.dialogues.sources if s.dataset != "convai2"} == {"hub"}
    assert (config.cluster.n_clusters, config.cluster.sample) == (1000, 7000)
    assert config.teacher.comparisons == 3000


BAD = [
    ("ultrachat", {"id": "1", "data": ["hi", 3]}, "wrong_type"),
    ("ultrachat", {"id": "1", "data": []}, "wrong_type"),
    ("ultrachat", {"id": "1", "turns": ["hi"]}, "missing_field"),
    ("sharegpt", {"id": "1", "conversations": []}, "wrong_type"),
    ("sharegpt", {"id": "1", "conversations": [{"from": "gpt", "value": "Hi"}]}, "last_not_user"),
    ("tal_scq5k", ROWS["TAL"][0] | {"answer_option_list": [{"aoVal": "A"}]}, "wrong_type"),
    ("alpaca", {"instruction": None, "input": "", "output": "x"}, "missing_field"),
    ("tigerbot", {"instruction": "\ud83d", "input": "", "output": "x"}, "not_utf8"),
    *(
        ("vicuna_bench", {"question_id": 9, **row}, "wrong_type")
        for row in ({"turns": []}, {"turns": "a"}, {"turns": [1]})
    ),
    ("vicuna_bench", {"question_id": 9, "question": "one"}, "missing_field"),
]


@pytest.mark.parametrize(("name", "row", "reason"), BAD)
def test_rows_of_another_shape_are_counted_by_reason(
    name: str, row: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in (row, *PUBLISHED[name][2])))
    source = DialogueSourceConfig(name="src", dataset=name, path=str(path))
    out, dialogues = run(tmp_path, source, strict=False)
    assert len(dialogues) == len(PUBLISHED[name][2])
    assert out.totals()["counts"]["dropped"] == {reason: 1}
    with pytest.raises(DataError, match=r"in\.jsonl:1: "):
        run(tmp_path, source)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", r"in\.json: the array is empty"),
        ('[{"query": "a"}, {"query": "b"', r"in\.json: not a whole JSON array .*row 2: Expecting"),
        ('[{"query": "a"}\n {"query": "b"}]', r"in\.json: not a whole JSON array .*expected , or \], found '{'"),
    ],
)
def test_a_broken_array_is_named_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(text)
    with pytest.raises(DataError, match=message):
        run(tmp_path, DialogueSourceConfig(name="src", path=str(tmp_path / "in.json")))
