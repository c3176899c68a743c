"""What a reader would type is read from a page: every command once, in order, without its comment."""

from __future__ import annotations

from pathlib import Path

from benchmarks.documented import PAGES, ROOT, Reader, commands

PAGE = """# A page

    make install && . .venv/bin/activate
    privit serve out --port 9000     # holds the weights
    src/privit/ a folder, not a command

    import privit

    with privit.connect("out") as client:
        print(client)

Then, on a name that is not ours:

    privit query cat.png --server model.example.org:9000
"""


def test_commands_come_in_order_and_python_is_one_of_them() -> None:
    first, second, block, last = commands(PAGE)
    assert (first, second) == ("make install && . .venv/bin/activate", "privit serve out --port 9000")
    assert block.startswith("python - <<'END'\nimport privit\n\nwith privit.connect")
    assert block.endswith("    print(client)\nEND")
    assert Reader(Path(), small=False).typed(last) == (
        "privit query cat.png --server 127.0.0.1:9000",
        ["a name that only a reader's network knows"],
    )


def test_only_the_model_and_its_data_are_smaller() -> None:
    for page in PAGES:
        for shown in commands((ROOT / page).read_text(encoding="utf-8")):
            typed = Reader(Path(), small=True).typed(shown.replace("token=...", ""))[0]
            assert ("digits" in typed) == ("cifar10" in shown)
            assert typed.split()[:2] == shown.split()[:2] or shown.startswith("pip")
