"""Several images in one query between two processes: answers, limits, and what is refused in which words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from serving import TOLERANCE, Served, digit_like, expected_logits

from privit.errors import PrivitError, RequestError
from privit.serve.parties.client import connect


def test_a_batch_answers_each_image_and_a_partial_one_is_filled_up(served: Served, tmp_path: Path) -> None:
    pictures = [digit_like(seed) for seed in range(5)]
    with connect(served.client_folder, served.server.address, state=tmp_path, batch=3) as client:
        found = list(client.predict_many(pictures))
        assert [prediction.images for prediction in found] == [3, 3, 3, 2, 2]
        for prediction, picture in zip(found, pictures, strict=True):
            np.testing.assert_allclose(prediction.logits, expected_logits(served, picture), atol=TOLERANCE)
        with pytest.raises(RequestError, match=r"4 images were given, but .* hold 1 to 3"):
            client.predict_batch([digit_like(0)] * 4)


def test_a_batch_beyond_the_servers_limit_is_refused_before_anything_is_compiled(
    served: Served, tmp_path: Path
) -> None:
    with pytest.raises(PrivitError, match=r"a batch of 9 images .* this server takes 8") as caught:
        connect(served.client_folder, served.server.address, state=tmp_path, batch=9)
    assert "--batch 8" in caught.value.hint
    assert not (tmp_path / "engine.log").exists()
