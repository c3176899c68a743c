"""What a client is told when something is wrong on its own side or with the address."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from serving import Served, digit_like, make_artifact

from privit.errors import ArtifactError, ConnectionFailed, HandshakeError, OutsideRanges, RequestError
from privit.plan import uniform_plan
from privit.serve.parties.client import Client, connect, health
from privit.serve.wire.addresses import parse_address


def test_a_client_folder_of_another_plan_is_refused_by_name_on_both_sides(
    served: Served, tmp_path: Path
) -> None:
    make_artifact(tmp_path, uniform_plan(served.artifact.spec, "identity", "squared_attn"))
    with pytest.raises(
        HandshakeError, match=r"the server runs plan .*, but .*client describes plan"
    ) as error:
        connect(tmp_path / "client", served.server.address)
    assert error.value.hint == "ask the server's owner for the matching client folder"


def test_a_server_of_another_protocol_is_refused_by_name(served: Served) -> None:
    with pytest.raises(HandshakeError, match=r"the server runs protocol cheetah, but .* protocol aby3"):
        connect(served.client_folder, served.server.address, protocol="aby3", helper="127.0.0.1:1")


def test_nobody_at_the_address_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionFailed, match=f"nobody answers at 127.0.0.1:{port}"):
        health(f"127.0.0.1:{port}")


def test_a_port_that_is_not_privits_is_said_so() -> None:
    import threading

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(1000)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConnectionFailed, match="not privit's"):
            health(f"127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


def test_a_server_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(ConnectionFailed, match="nothing"):
        health(f"127.0.0.1:{listener.getsockname()[1]}", seconds=0.3)


def test_a_folder_that_is_no_artifact_is_refused_before_connecting(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="not a privit artifact"):
        connect(tmp_path, "127.0.0.1:1")


@pytest.mark.parametrize("text", ["", "9000", "localhost", "localhost:", ":9000", "h:0", "h:70000", "h:x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="is not an address"):
        parse_address(text)


def test_addresses_may_be_ipv6() -> None:
    assert parse_address("[::1]:9000") == ("::1", 9000)


def test_an_image_of_the_wrong_kind_leaves_the_session_usable(client: Client, tmp_path: Path) -> None:
    (tmp_path / "note.png").write_text("not an image")
    Image.fromarray(digit_like(5)).save(tmp_path / "digit.png")
    wrong: list[Any] = [
        tmp_path / "note.png",
        tmp_path / "missing.png",
        np.zeros((8, 8)),
        np.zeros(8, np.uint8),
    ]
    wrong += [
        np.zeros((3, 8, 8), np.uint8),
        np.zeros((8, 8, 5), np.uint8),
        [[0]],
        None,
        b"",
        Image.new("L", (0, 3)),
    ]
    for image in wrong:
        with pytest.raises(RequestError):
            client.predict(image)
    one, other = client.predict_many([tmp_path / "digit.png", digit_like(5)[:, :, None]])
    assert one.class_name == other.class_name
    np.testing.assert_allclose(one.logits, other.logits, atol=1e-3)


def test_an_answer_far_beyond_the_public_range_is_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = max(abs(value) for value in client.predict(digit_like(3)).logits)
    monkeypatch.setattr(client, "public", replace(client.public, ranges={"logits": largest / 3.9}))
    client.predict(digit_like(3))
    monkeypatch.setattr(client, "public", replace(client.public, ranges={"logits": largest / 4.2}))
    with pytest.raises(OutsideRanges, match="not one that this model can give") as error:
        client.predict(digit_like(3))
    assert error.value.exit_code == 3
