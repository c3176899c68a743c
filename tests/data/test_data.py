"""Every data set comes through one loader, and its test set never moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from privit.data.datasets import Data, Split, default_preprocessing, load_data, preprocess_split, resized
from privit.data.images import preprocess
from privit.errors import RequestError
from privit.spec import vit_spec

CLASSES = ("cat", "dog", "owl")


def small_picture(seed: int, size: tuple[int, int] = (6, 5), mode: str = "RGB") -> Image.Image:
    """A random picture."""
    width, height = size
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def write_folder(root: Path, count: int, classes: tuple[str, ...] = CLASSES, **options: Any) -> None:
    """`count` pictures for each class, one folder per class."""
    for i, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for k in range(count):
            small_picture(1000 * i + k, **options).save(root / name / f"{k:03}.png")


def write_parquet(path: Path, count: int, **columns: Any) -> None:
    """`count` pictures with labels in the Hugging Face layout."""
    import datasets

    rows = {"image": [small_picture(k) for k in range(count)], "label": [k % 3 for k in range(count)]}
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))}
    datasets.Dataset.from_dict(rows | columns, features=datasets.Features(features)).to_parquet(str(path))


def identities(split: Split) -> set[bytes]:
    """What each image of a split shows."""
    return {split.image(i).tobytes() + bytes([split.labels[i]]) for i in range(len(split))}


@pytest.fixture(scope="module")
def digits() -> Data:
    return load_data("digits")


def test_digits_are_8_x_8_grey_images_of_ten_classes(digits: Data) -> None:
    image = digits.train.image(0)
    assert (image.size, image.mode, digits.classes) == ((8, 8), "L", 10)
    assert digits.train.pixels().max() == 255  # type: ignore[union-attr]


def test_the_splits_of_digits_share_no_image_and_leave_none_out(digits: Data) -> None:
    parts = [set(split.indices.tolist()) for split in (digits.train, digits.validation, digits.test)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 1797


def test_the_test_set_is_the_same_for_every_seed_and_limit(digits: Data) -> None:
    other = load_data("digits", seed=7, train_limit=100, validation_share=0.3)
    assert np.array_equal(other.test.indices, digits.test.indices)


def test_the_same_seed_gives_the_same_splits_and_another_one_others(digits: Data) -> None:
    again, other = load_data("digits"), load_data("digits", seed=1)
    assert np.array_equal(again.train.indices, digits.train.indices)
    assert not np.array_equal(other.validation.indices, digits.validation.indices)


def test_every_split_has_the_classes_in_the_shares_of_the_whole(digits: Data) -> None:
    for split in (digits.train, digits.validation, digits.test):
        shares = np.bincount(split.labels, minlength=10) / len(split)
        assert np.abs(shares - 0.1).max() < 0.015


def test_a_limit_takes_as_many_images_of_each_class() -> None:
    data = load_data("digits", train_limit=200)
    assert np.bincount(data.train.labels).tolist() == [20] * 10
    assert len(data.validation) == 20


@pytest.mark.parametrize("limit", [0, -5, 5000])
def test_a_limit_beyond_the_data_is_refused(limit: int) -> None:
    with pytest.raises(RequestError, match=f"{limit} training images are asked for, but"):
        load_data("digits", train_limit=limit)


@pytest.mark.parametrize("share", [0, 1, -0.1, 2])
def test_a_validation_share_that_leaves_nothing_is_refused(share: float) -> None:
    with pytest.raises(RequestError, match="validation share"):
        load_data("digits", validation_share=share)


def test_a_split_is_preprocessed_as_its_images_are(digits: Data) -> None:
    preprocessing = default_preprocessing(digits, vit_spec(12, 4, 8, 1, 1, 10))
    chosen = np.array([5, 0, 17])
    inputs = preprocess_split(digits.train, preprocessing, chosen)
    assert inputs.shape == (3, 3, 12, 12)
    for row, i in enumerate(chosen):
        assert np.array_equal(inputs[row], preprocess(digits.train.image(i), preprocessing))


def test_a_fresh_models_inputs_have_mean_0_and_deviation_1(digits: Data) -> None:
    preprocessing = default_preprocessing(digits, vit_spec(8, 4, 8, 1, 1, 10, channels=1))
    inputs = preprocess_split(digits.train, preprocessing)
    assert abs(inputs.mean()) < 1e-3
    assert abs(inputs.std() - 1) < 1e-3


def test_pixels_are_the_images_in_order(digits: Data) -> None:
    pixels = digits.test.pixels()
    assert pixels is not None
    assert pixels.shape == (len(digits.test), 8, 8, 1)
    assert np.array_equal(pixels[11, :, :, 0], np.asarray(digits.test.image(11)))
    assert digits.test.pixels() is pixels


def test_images_of_different_sizes_have_no_common_array_but_are_resized_all_the_same(tmp_path: Path) -> None:
    write_folder(tmp_path / "train", 4)
    write_folder(tmp_path / "test", 2)
    small_picture(0, (9, 9)).save(tmp_path / "test" / "cat" / "large.png")
    data = load_data(str(tmp_path))
    assert data.test.pixels() is None
    preprocessing = default_preprocessing(data, vit_spec(4, 2, 8, 1, 1, 3))
    assert resized(data.test, preprocessing).shape == (7, 4, 4, 3)


def test_a_folder_of_classes_with_splits(tmp_path: Path) -> None:
    write_folder(tmp_path / "train", 10)
    write_folder(tmp_path / "val", 2)
    write_folder(tmp_path / "test", 3)
    data = load_data(str(tmp_path))
    assert data.class_names == CLASSES
    assert [len(split) for split in (data.train, data.validation, data.test)] == [30, 6, 9]
    assert np.array_equal(np.asarray(data.test.image(4)), np.asarray(small_picture(1001)))
    assert data.test.labels.tolist() == [0] * 3 + [1] * 3 + [2] * 3


def test_a_lone_validation_split_is_the_test_set_and_is_never_selected_on(tmp_path: Path) -> None:
    write_folder(tmp_path / "train", 10)
    write_folder(tmp_path / "validation", 2, mode="L")
    data = load_data(str(tmp_path))
    assert [len(split) for split in (data.train, data.validation, data.test)] == [27, 3, 6]
    assert not identities(data.validation) & identities(data.test)


def test_a_folder_of_classes_without_splits_is_split_the_same_way_every_time(tmp_path: Path) -> None:
    write_folder(tmp_path, 10)
    first, second = load_data(str(tmp_path)), load_data(str(tmp_path), seed=3)
    assert len(first.test) == 6
    assert np.bincount(first.test.labels).tolist() == [2, 2, 2]
    assert np.array_equal(first.test.indices, second.test.indices)


def test_a_class_that_training_lacks_is_refused_by_name(tmp_path: Path) -> None:
    write_folder(tmp_path / "train", 2)
    write_folder(tmp_path / "test", 1, classes=(*CLASSES, "fox"))
    with pytest.raises(RequestError, match=r"test has classes that .*train lacks: fox"):
        load_data(str(tmp_path))


@pytest.mark.parametrize("classes", [(), ("cat",)])
def test_a_folder_without_two_classes_is_refused_with_the_layout(
    tmp_path: Path, classes: tuple[str, ...]
) -> None:
    write_folder(tmp_path, 2, classes=classes)
    with pytest.raises(RequestError, match=f"images of {len(classes)} classes") as caught:
        load_data(str(tmp_path))
    assert "train/CLASS/*.png" in caught.value.hint


@pytest.mark.parametrize("below", ["", "data"])
def test_parquet_files_in_the_hugging_face_layout(tmp_path: Path, below: str) -> None:
    (tmp_path / below).mkdir(exist_ok=True)
    write_parquet(tmp_path / below / "train-00000-of-00002.parquet", 30)
    write_parquet(tmp_path / below / "train-00001-of-00002.parquet", 30)
    write_parquet(tmp_path / below / "test-00000-of-00001.parquet", 9)
    data = load_data(str(tmp_path))
    assert data.class_names == CLASSES
    assert [len(split) for split in (data.train, data.validation, data.test)] == [54, 6, 9]
    assert np.array_equal(np.asarray(data.test.image(8)), np.asarray(small_picture(8)))
    assert data.test.labels.tolist() == [0, 1, 2] * 3


def test_parquet_files_beyond_memory_are_mapped_from_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("privit.data.sources.IN_MEMORY_BYTES", 0)
    (tmp_path / "data").mkdir()
    write_parquet(tmp_path / "data" / "train.parquet", 30)
    data = load_data(str(tmp_path), validation_share=0.25)
    assert data.class_names == CLASSES
    assert [len(split) for split in (data.train, data.validation, data.test)] == [18, 6, 6]


def test_parquet_files_without_hugging_faces_notes(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    write_parquet(tmp_path / "other.parquet", 12)
    images = pq.read_table(tmp_path / "other.parquet").column("image").combine_chunks().field("bytes")
    (tmp_path / "other.parquet").unlink()
    names = [CLASSES[k % 3] for k in range(12)]
    pq.write_table(pa.table({"image": images, "label": names}), tmp_path / "train.parquet")
    data = load_data(str(tmp_path), validation_share=0.2)
    assert data.class_names == CLASSES
    assert [len(split) for split in (data.train, data.validation, data.test)] == [8, 2, 2]


def test_a_parquet_file_that_belongs_to_no_split_is_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "pictures.parquet", 3)
    with pytest.raises(RequestError, match=r"pictures.parquet does not say which split"):
        load_data(str(tmp_path))


def test_a_parquet_file_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", 3)
    (tmp_path / "train.parquet").write_bytes((tmp_path / "train.parquet").read_bytes()[:-40])
    with pytest.raises(RequestError, match="cannot be read"):
        load_data(str(tmp_path))


def test_a_table_without_images_is_refused_with_its_columns(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["a", "b"], "label": [0, 1]}), tmp_path / "train.parquet")
    with pytest.raises(RequestError, match="no image column; its columns are text, label"):
        load_data(str(tmp_path))


def test_a_damaged_image_is_named_when_it_is_read(tmp_path: Path) -> None:
    write_folder(tmp_path, 10)
    (tmp_path / "cat" / "000.png").write_bytes(b"nothing")
    data = load_data(str(tmp_path))
    whole = Split(data.train.source, np.arange(30))
    with pytest.raises(RequestError, match=r"000.png is not an image"):
        whole.pixels()


def test_a_known_name_is_found_below_privit_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "tiny-imagenet", 5)
    monkeypatch.setenv("PRIVIT_DATA", str(tmp_path))
    assert load_data("tiny-imagenet").class_names == CLASSES


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "tiny-imagenet", "fashion-mnist"])
def test_a_download_that_fails_names_the_local_layout_that_would_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVIT_DATA", str(tmp_path))
    with pytest.raises(RequestError, match=f"{name} could not be downloaded") as caught:
        load_data(name)
    assert f"$PRIVIT_DATA/{name}" in caught.value.hint
    assert "train-*.parquet" in caught.value.hint


def test_any_hub_name_is_tried(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="hf:nobody/nothing could not be downloaded") as caught:
        load_data("hf:nobody/nothing")
    assert "give a folder" in caught.value.hint


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        RequestError, match="no data set is called 'cifar11', and it is not a folder"
    ) as caught:
        load_data("cifar11")
    assert "digits, cifar10, cifar100, tiny-imagenet, fashion-mnist, hf:NAME" in caught.value.hint


@pytest.mark.shared
def test_cifar10_beside_the_repository(shared_data: Path) -> None:
    data = load_data(str(shared_data / "cifar10"), train_limit=500)
    assert len(data.test) == 10_000
    assert data.class_names[:3] == ("airplane", "automobile", "bird")
    assert np.bincount(data.train.labels).tolist() == [50] * 10
    assert data.train.image(0).size == (32, 32)
