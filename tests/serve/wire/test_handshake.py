"""Two parties that do not describe the same computation are told apart by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from serving import make_artifact

from privit.artifact import FORMAT_VERSION, load_artifact
from privit.errors import HandshakeError
from privit.plan import uniform_plan
from privit.serve.engine.protocols import protocol
from privit.serve.wire.handshake import (
    NAMES,
    batch_of,
    check,
    check_batch,
    describe,
    first_difference,
    of_batch,
    short,
)

HASHES = {name: f"{i:064x}" for i, name in enumerate(NAMES)}


@pytest.mark.parametrize("name", NAMES)
def test_every_difference_is_refused_by_its_own_name(name: str) -> None:
    with pytest.raises(
        HandshakeError, match=rf"the server runs {name} .*, but out/client describes {name} "
    ) as e:
        check(HASHES, HASHES | {name: "f" * 64}, "out/client")
    assert e.value.hint


def test_equal_descriptions_pass_and_a_missing_name_does_not() -> None:
    check(HASHES, dict(HASHES), "out/client")
    assert first_difference(HASHES, {k: v for k, v in HASHES.items() if k != "spu version"}) == "spu version"


def test_the_difference_that_explains_the_others_is_named_first() -> None:
    other = HASHES | {"plan": "0" * 64, "program": "1" * 64}
    assert first_difference(HASHES, other) == "plan"


def test_a_plan_mismatch_reads_as_in_the_style_guide() -> None:
    server, client = HASHES | {"plan": "9f3c" + "0" * 60}, HASHES | {"plan": "41aa" + "0" * 60}
    with pytest.raises(HandshakeError) as error:
        check(server, client, "out/deit-client")
    assert str(error.value) == (
        "the server runs plan 9f3c0000..., but out/deit-client describes plan 41aa0000...\n"
        "hint: ask the server's owner for the matching client folder"
    )


def test_a_value_from_the_other_side_is_cut_and_made_printable() -> None:
    assert short("a\x1b[1m\n" + "x" * 100) == "a[1m" + "x" * 34
    assert short("") == "?"


def test_server_and_client_folder_of_one_artifact_have_one_description(tmp_path: Path) -> None:
    make_artifact(tmp_path)
    config = protocol("cheetah").runtime_config().SerializeToString()
    described = [
        describe(load_artifact(tmp_path / side), "cheetah", "p" * 64, config, "options")
        for side in ("server", "client")
    ]
    assert described[0] == described[1]
    assert set(described[0]) == set(NAMES) - {"batch"}


def test_another_plan_or_runtime_configuration_changes_the_description(tmp_path: Path) -> None:
    artifact = make_artifact(tmp_path)
    other = make_artifact(tmp_path / "other", uniform_plan(artifact.spec, "relu", "softmax"))
    config = protocol("cheetah").runtime_config()
    first = describe(artifact, "cheetah", "p", config.SerializeToString(), "")
    assert first_difference(first, describe(other, "cheetah", "p", config.SerializeToString(), "")) == "plan"
    config.fxp_fraction_bits = 17
    changed = describe(artifact, "cheetah", "p", config.SerializeToString(), "")
    assert first_difference(first, changed) == "runtime configuration"


@pytest.mark.parametrize(("server", "client"), [("2", "1"), ("1", "2")])
def test_an_old_client_and_a_new_server_are_told_by_the_format(server: str, client: str) -> None:
    with pytest.raises(HandshakeError, match=f"the server runs format {server}, but out/client") as caught:
        check(HASHES | {"format": server}, HASHES | {"format": client, "plan": "0" * 64}, "out/client")
    assert caught.value.hint == "upgrade the older privit of the two"


def test_what_is_described_is_the_format_that_this_version_writes(tmp_path: Path) -> None:
    artifact = make_artifact(tmp_path)
    assert describe(artifact, "cheetah", "p", b"", "")["format"] == str(FORMAT_VERSION) == "2"


def test_a_guard_on_one_side_alone_is_refused_by_name(tmp_path: Path) -> None:
    artifact = make_artifact(tmp_path)
    guarded = replace(artifact, public=replace(artifact.public, guard=True))
    first, other = (describe(one, "cheetah", "p", b"", "") for one in (artifact, guarded))
    assert first_difference(first, other) == "guard"
    with pytest.raises(HandshakeError, match="the server runs guard off, but out/client describes guard on"):
        check(first, other, "out/client")


def test_a_description_without_a_batch_means_one_image(tmp_path: Path) -> None:
    artifact = make_artifact(tmp_path)
    one, eight = (describe(artifact, "cheetah", "p" * 64, b"", "", images) for images in (1, 8))
    assert "batch" not in one
    assert (batch_of(one), batch_of(eight)) == (1, 8)
    assert first_difference(one, eight) == "batch"
    assert first_difference(of_batch(one, eight), eight) is None
    other = one | {"program": "q" * 64}
    assert first_difference(of_batch(one, other), other) == "program"


@pytest.mark.parametrize("text", ["", "0", "-1", "8.0", "99999", "\u0663"])
def test_a_batch_that_is_no_number_of_images_is_refused(text: str) -> None:
    with pytest.raises(HandshakeError, match="not a number of images"):
        batch_of({"batch": text})


def test_a_batch_beyond_the_limit_is_refused_in_these_words() -> None:
    assert check_batch({"batch": "8"}, 8, "this server") == 8
    with pytest.raises(HandshakeError) as error:
        check_batch({"batch": "9"}, 8, "this server")
    assert str(error.value) == (
        "a batch of 9 images was asked for, but this server takes 8 in one query at most\n"
        "hint: ask with --batch 8, or ask its owner to start it with a larger --batch"
    )
