"""From a model, data and a budget to an artifact: what the other rooms do, one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from privit.building.check import check, known_artifact, make_artifact, whole_teacher
from privit.building.foresee import Foreseen, foresee
from privit.building.request import Request, check_request
from privit.building.stages import Student, make_student, make_teacher, overspent, teacher_ranges
from privit.building.table import report, rows_of
from privit.errors import BudgetError, RequestError
from privit.locks import lock_folder
from privit.runs import load_run, write_text


def build(request: Request, tell: Callable[[str], None] | None = None) -> dict[str, Any]:
    """What was built, with the teacher's and the student's accuracy and cost; all files are in `request.out`.

    Stages that are finished are not done again, so that the same call goes on where it stopped. `tell` is
    called with what is being done.
    """
    say = tell or (lambda _: None)
    check_request(request)
    if request.out.exists() and not request.out.is_dir():
        raise RequestError(f"{request.out} is a file, but a build is a folder", "give another --out")
    foreseen = foresee(request)
    for sentence in foreseen.sentences(request):
        say(sentence)
    request.out.mkdir(parents=True, exist_ok=True)
    with lock_folder(request.out, again=True):
        teacher = make_teacher(request, foreseen)
        ranges = teacher_ranges(teacher, request.seed)
        student = _within(request, foreseen, teacher, ranges, say)
        over = partial(overspent, request)
        artifact = make_artifact(student.run, request.out, over, say)
        made = known_artifact(student.run, request.out, over, say)
        if made.over > 1:
            say(f"warning: it is predicted to cost {made.over - 1:.1%} more than it may, as exported")
        whole = whole_teacher(teacher, ranges)
        measured = check(request, artifact, whole, foreseen.data, say) if request.check else {}
        results = (load_run(teacher).result() or {}, load_run(student.run).result() or {})
        rows = rows_of(request, whole, artifact, results, measured)
        text = report(f"{request.model} on {foreseen.data.name}", request, rows, student.tries, made.said)
        write_text(request.out / "report.md", text)
        result = {
            "artifact": str(request.out / "artifact"),
            "student": str(student.run),
            "teacher": str(teacher),
            "protocol": request.protocol,
            "network": request.network,
            "points_below_validation": 100 * (rows[1].validation_accuracy - rows[2].validation_accuracy),
            "points_below": 100 * (rows[1].accuracy - rows[2].accuracy),
            "over_budget": made.over > 1,
            "models": [asdict(row) for row in rows],
            "tries": list(student.tries),
            "check": measured.get("simulated", {}),
            "report": str(request.out / "report.md"),
        }
        write_text(request.out / "build.json", json.dumps(result, indent=2) + "\n")
    return result


def _within(
    request: Request, foreseen: Foreseen, teacher: Path, ranges: dict[str, float], say: Callable[[str], None]
) -> Student:
    """The student for the budgets; if its exported program costs more than it may, one made for less."""
    student = make_student(request, foreseen, teacher, ranges, say)
    say("export")
    over = known_artifact(student.run, request.out, partial(overspent, request), say).over
    if over <= 1 or student.tries:
        return student
    say(f"exported, it is predicted to cost {over - 1:.1%} more than it may: once more, for less")
    try:
        return make_student(request, foreseen, teacher, ranges, say, over)
    except BudgetError as error:
        say(f"warning: {error.message}")
        return student
