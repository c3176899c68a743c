"""Recipes: every problem is found at once and before anything starts, and the committed ones have none."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from small_recipe import EXPERIMENT, SETTING, write_recipe

from privit.cli import main
from privit.errors import RequestError
from privit.sections import SECTIONS
from privit.spec import KINDS
from privit.sweep.methods import METHODS
from privit.sweep.recipe.recipe import read_recipe
from privit.sweep.run.runner import run_sweep
from privit.sweep.run.tasks import Grid

RECIPES = Path(__file__).resolve().parents[3] / "recipes"
FILES = sorted(RECIPES.rglob("*.toml"))


def titles(files: list[Path]) -> list[str]:
    return [f"{file.parent.name}-{file.stem}" for file in files]


@pytest.mark.parametrize("file", FILES, ids=titles(FILES))
def test_every_committed_recipe_has_no_problems_and_opens_with_what_to_expect(file: Path) -> None:
    recipe = read_recipe(file)
    assert Grid(recipe).cells
    lines = recipe.expect.splitlines()
    assert f"privit sweep recipes/{recipe.name}.toml" in lines[0]
    assert lines[1].startswith("Time: ")
    assert lines[2].startswith("Expect: ")
    for experiment in recipe.experiments:
        # Comparisons have three seeds or say how many; what is measured of a plan varies with none.
        named = experiment.name == "measured" or any(f"{n} seed" in experiment.note for n in ("one", "two"))
        assert len(experiment.setting.seeds) >= 3 or named


@pytest.mark.parametrize("section", SECTIONS)
def test_a_recipe_may_ask_for_whatever_a_report_makes(section: str, tmp_path: Path) -> None:
    recipe = read_recipe(write_recipe(tmp_path, EXPERIMENT + f'shows = ["{section}"]\n'))
    assert recipe.experiments[0].shows == (section,)


@pytest.mark.parametrize("size", ["mini", "cifar10", "paper"])
def test_each_size_has_every_experiment_of_the_paper(size: str) -> None:
    labels = " ".join(e.paper for e in read_recipe(RECIPES / size / "all.toml").experiments)
    for label in (
        "tab:tinyimagenet_comparison",
        "the unlabelled seconds table",
        "secretflow_c10",
        "fig: pareto curve c10/100",
        "fig:TI-kd-ablate",
        "tab:privit_pretrain_ablate",
        "fig:ti_pretrain_ablate_GELU",
        "fig:ti_pretrain_ablate_softmax",
        "fig:C100-softmax-candidatee",
        "tab:c10-manual_pruning",
        "tab:finetuning",
        "fig:grid_search_privit",
        "fig:GELU_plot",
        "tab:perf degradation",
        "fig:C100-GELU_distribution",
        "fig:C100-softmax_distribution",
    ):
        assert label in labels, label


def test_the_mini_recipes_compare_every_method_of_the_paper() -> None:
    used = {
        m.name
        for file in RECIPES.glob("mini/*.toml")
        for e in read_recipe(file).experiments
        for m in e.methods
    }
    assert {
        "privit-g",
        "privit-r",
        "mpcvit",
        "mpcvit-plus",
        "mpcformer",
        "snl",
        "uniform",
        "random",
        "dense",
    } <= used
    assert {"dense-rewritten", "privit-no-kd", "privit-scratch", "strategy-1", "strategy-5"} <= used
    for method in METHODS.values():
        assert set(method.kinds) <= set(KINDS)


BAD = """
colour = "blue"
model = "vit:image_size=8,patch=3,width=16,depth=2,heads=2,channels=1"
data = "no-such-folder"
preset = "none"
seeds = [0, 0]

[teacher]
epoch = 3

[search]
epochs = 0

[cost]
protocols = ["rot13"]
networks = ["moon"]

[methods.mine]
base = "yours"

[[experiments]]
name = "a"
methods = ["privit-x", "privit-g"]
keep = [0.5]
shows = ["magic"]
size = 3
"""


def test_all_problems_come_at_once_and_nothing_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_recipe(tmp_path, BAD, "")
    assert main(["sweep", str(file), "--out", str(tmp_path / "out")]) == 2
    text = capsys.readouterr().err
    for words in (
        "the recipe has an unknown key 'colour'",
        "image size 8 is not divisible by patch size 3",
        "there is no such folder here",
        "no preset is called 'none'",
        "seeds is [0, 0]",
        "[teacher] has no setting 'epoch'",
        "[search]: epochs is 0, not above zero",
        "[cost] protocols has 'rot13'",
        "'moon'",
        "method mine: no method is called 'yours'",
        "experiment a: no method is called 'privit-x'",
        "shows has 'magic'",
        "experiment a has an unknown key 'size'",
    ):
        assert words in text, words
    assert re.search(r"has 13 problems", text)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("budgets", "words"),
    [
        ("budgets = [{ gelu = 11, softmax = 3 }]", "budget is 11, but the model has 10 gelu sites"),
        ("budgets = [{ gelu = 0.5, softmax = -1 }]", "the softmax budget is -1, below zero"),
        ("budgets = [{ gelu = 0.5 }]", "says nothing about softmax"),
        ("budgets = [{ relu = 1 }]", "is not a budget"),
        ("keep = [2]", "keep has 2, but shares of the sites from 0 to 1 were expected"),
        ("keep = [nan]", "keep has nan, but shares"),
        ("budgets = [{ gelu = 1.5, softmax = 3 }]", "the gelu budget is 1.5, neither a share nor"),
        ("budgets = [{ gelu = inf, softmax = 3 }]", "the gelu budget is inf, not a number of sites"),
        ("budgets = [{ gelu = 1e300, softmax = 3 }]", "budget is 1e+300, but the model has 10 gelu sites"),
        ("keep = [0.5, 0.5]", "two budgets are called 'keep-0.5'"),
        ("", "no budget is given"),
    ],
)
def test_an_impossible_budget_is_a_problem(tmp_path: Path, budgets: str, words: str) -> None:
    text = f'[[experiments]]\nname = "a"\nmethods = ["privit-g"]\n{budgets}\n'
    with pytest.raises(RequestError, match=re.escape(words)):
        read_recipe(write_recipe(tmp_path, text))


NORMS = """
[methods.norms]
base = "BASE"
search = { kinds = ["gelu", "softmax", "norm"]TOKENS }

[[experiments]]
name = "a"
methods = ["norms"]
budgets = [{ gelu = 0, softmax = 0, norm = NORM }]
"""


def with_norms(base: str = "fitted", tokens: str = "", norm: str = "3") -> str:
    return NORMS.replace("BASE", base).replace("TOKENS", tokens).replace("NORM", norm)


def test_a_method_may_replace_norms_and_pool_tokens(tmp_path: Path) -> None:
    grid = Grid(read_recipe(write_recipe(tmp_path, with_norms(tokens=", tokens = [5, 3]"))))
    (wanted,) = [task.settings["config"] for task in grid.tasks.values() if task.stage == "search"]
    assert wanted["budgets"][0]["sites"] == {"gelu": 0, "softmax": 0, "norm": 3}
    assert (wanted["kinds"], wanted["tokens"]) == (["gelu", "softmax", "norm"], [5, 3])


def test_stages_of_recipes_without_norms_are_called_as_before_there_were_any(tmp_path: Path) -> None:
    grid = Grid(read_recipe(write_recipe(tmp_path)))
    (wanted,) = [task.settings["config"] for task in grid.tasks.values() if task.stage == "search"]
    assert "norm" not in json.dumps(wanted)
    assert "tokens" not in wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (with_norms(norm="6"), "budget is 6, but the model has 5 norm sites"),
        (with_norms(tokens=", tokens = [5, 6]"), "tokens: block 1 is to have 6 tokens, but only 5 reach it"),
        (with_norms(tokens=", tokens = [5]"), "1 token counts given, but the model has 2 blocks"),
        (with_norms("uniform"), "only searches replace LayerNorms"),
        (with_norms("uniform", ", tokens = [5, 3]"), "its models have the teacher's tokens"),
        (
            with_norms().replace('methods = ["norms"]', 'methods = ["fitted"]'),
            "no method here replaces LayerNorms",
        ),
        (with_norms().replace(", norm = 3", ""), "says nothing about norm"),
    ],
)
def test_norms_and_tokens_that_cannot_be_are_a_problem(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RequestError, match=re.escape(words)):
        read_recipe(write_recipe(tmp_path, text))


def test_budgets_are_checked_against_each_methods_own_sites(tmp_path: Path) -> None:
    text = '[[experiments]]\nname = "a"\nmethods = ["privit-g", "mpcvit"]\n'
    text += "budgets = [{ gelu = 3, softmax = 6 }]\n"
    with pytest.raises(RequestError, match=r"mpcvit: budget .* the model has 4 softmax sites"):
        read_recipe(write_recipe(tmp_path, text))


def test_problems_of_included_recipes_say_where_they_are(tmp_path: Path) -> None:
    write_recipe(tmp_path, BAD, "")
    whole = tmp_path / "all.toml"
    whole.write_text('include = ["small.toml", "absent.toml"]\n')
    with pytest.raises(RequestError, match=r"small.toml: the recipe has an unknown key") as caught:
        read_recipe(whole)
    assert "there is no recipe" in caught.value.message


def test_recipes_that_include_each_other_are_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('include = ["b.toml"]\n')
    (tmp_path / "b.toml").write_text('include = ["a.toml"]\n')
    with pytest.raises(RequestError, match=r"b.toml: a.toml includes itself"):
        read_recipe(tmp_path / "a.toml")


def test_names_that_could_leave_the_folder_are_a_problem(tmp_path: Path) -> None:
    text = '[[experiments]]\nname = "../up"\nmethods = ["privit-g"]\n'
    text += 'budgets = [{ gelu = 0.1, softmax = 0.1, name = "/etc" }]\n'
    with pytest.raises(RequestError, match=r"'\.\./up' cannot be a folder's name") as caught:
        read_recipe(write_recipe(tmp_path, text))
    assert "'/etc' cannot be a folder's name" in caught.value.message


def test_a_file_that_is_not_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"is not TOML: .*line 1"):
        read_recipe(write_recipe(tmp_path, "", "model = = 3"))


def test_one_descent_meets_all_budgets_of_a_front_and_both_priv_its_share_it(tmp_path: Path) -> None:
    text = EXPERIMENT.replace('["privit-g"]', '["privit-g", "privit-r"]').replace("[0.5]", "[0.1, 0.5, 0.3]")
    grid = Grid(read_recipe(write_recipe(tmp_path, text)))
    searches = [task for task in grid.tasks.values() if task.stage == "search"]
    assert len(searches) == 1
    assert [b["name"] for b in searches[0].settings["config"]["budgets"]] == [
        "keep-0.5",
        "keep-0.3",
        "keep-0.1",
    ]
    assert sum(task.stage == "finetune" for task in grid.tasks.values()) == 6


def test_a_grid_takes_one_descent_for_each_gelu_budget(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("keep = [0.5]", "grid = { gelu = [0.5, 0.2], softmax = [0.5, 0.2, 0.1] }")
    grid = Grid(read_recipe(write_recipe(tmp_path, text)))
    chains = [task.settings["config"]["budgets"] for task in grid.tasks.values() if task.stage == "search"]
    assert [[(b["sites"]["gelu"], b["sites"]["softmax"]) for b in chain] for chain in chains] == [
        [(0.5, 0.5), (0.5, 0.2), (0.5, 0.1)],
        [(0.2, 0.5), (0.2, 0.2), (0.2, 0.1)],
    ]


def test_seeds_share_a_teacher_if_asked_to(tmp_path: Path) -> None:
    setting = SETTING.replace("seeds = [0]", "seeds = [0, 1, 2]")
    own = Grid(read_recipe(write_recipe(tmp_path, setting=setting)))
    one = Grid(read_recipe(write_recipe(tmp_path, setting="teacher_seed = 7\n" + setting)))
    teachers = [[t for t in grid.tasks.values() if t.stage == "teacher"] for grid in (own, one)]
    assert [len(found) for found in teachers] == [3, 1]
    assert teachers[1][0].settings["config"]["seed"] == 7


def test_a_model_file_may_lie_below_privit_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = re.sub('model = ".*"', 'model = "timm:deit_tiny_patch16_224@tiny.safetensors"', SETTING)
    file = write_recipe(tmp_path, EXPERIMENT, setting)
    monkeypatch.setenv("PRIVIT_DATA", str(tmp_path / "data"))
    with pytest.raises(RequestError, match=r"there is no file tiny.safetensors"):
        read_recipe(file)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tiny.safetensors").touch()
    spec = read_recipe(file).experiments[0].setting.spec
    assert spec is not None
    assert spec.tokens == 197
    # Whoever only reads a recipe need not have the file.
    monkeypatch.delenv("PRIVIT_DATA")
    recipe = read_recipe(file)
    with pytest.raises(RequestError, match=r"there is no file tiny.safetensors"):
        run_sweep(recipe, tmp_path / "out")
    assert not (tmp_path / "out" / "stages").exists()


def test_the_recipe_of_deit_has_the_students_of_its_page() -> None:
    page = json.loads((RECIPES.parent / "docs/results/cifar10/results.json").read_text())
    grid = Grid(read_recipe(RECIPES / "cifar10" / "deit.toml"))
    students = {c.method.student_of(c.budget.name) for c in grid.cells if c.experiment.name == "deit"}
    assert page["students"].keys() <= students
    searches = {t.name for t in grid.tasks.values() if t.stage == "search"}
    # Two descents, SNL's, one under cost for two students, and four that train nothing.
    assert len(searches) == 8


def test_settings_are_the_same_for_every_method_but_for_what_its_entry_says(tmp_path: Path) -> None:
    text = EXPERIMENT.replace('["privit-g"]', '["privit-g", "snl", "mpcvit"]')
    grid = Grid(read_recipe(write_recipe(tmp_path, text)))
    configs = [t.settings["config"] for t in grid.tasks.values() if t.stage == "search"]
    free = {"budgets", "kinds", "granularity", "exact", "stand_in"}
    assert len(configs) == 3
    assert len({str({k: v for k, v in c.items() if k not in free}) for c in configs}) == 1
    assert tomllib.loads(SETTING)["search"]["epochs"] == configs[0]["epochs"]


def test_a_check_says_what_would_run_and_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_recipe(tmp_path)
    assert main(["sweep", str(file), "--out", str(tmp_path / "out"), "--check", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cells"] == 1
    assert found["stages_to_run"] == {
        "teacher": 1,
        "search": 1,
        "matching": 0,
        "finetune": 1,
        "result": 1,
        "bench": 0,
        "agreement": 0,
        "private": 0,
    }
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("model", "layers", "words"),
    [
        ("vit:image_size=8,patch=4,width=16,depth=2,heads=2,channels=1", "[3]", "from 0 to 2 was expected"),
        ("hf:some/model", "[]", "give layers"),
    ],
)
def test_layers_that_the_model_lacks_are_a_problem(
    tmp_path: Path, model: str, layers: str, words: str
) -> None:
    setting = re.sub('model = ".*"', f'model = "{model}"', SETTING)
    text = f"[methods.layerwise]\nlayers = {layers}\n" + EXPERIMENT.replace("privit-g", "layerwise")
    with pytest.raises(RequestError, match=words):
        read_recipe(write_recipe(tmp_path, text, setting))
