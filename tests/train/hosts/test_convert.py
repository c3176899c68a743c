"""A student filled from a host gives the host's logits, and what does not fit is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.layers import resample_abs_pos_embed
from torch import nn
from transformers import DeiTConfig, DeiTForImageClassification, ViTConfig, ViTForImageClassification

from privit.errors import ModelRefused, RequestError
from privit.spec import Spec, vit_spec, weight_shapes, with_image_size
from privit.train.hosts.convert import (
    convert_hf,
    convert_timm,
    load_host,
    random_weights,
    resample_position,
)
from privit.train.student.vit import Student

TOLERANCE = 1e-4
"""Float32 sums over a few hundred terms in another order; logits here are of the order of 1."""


def randomised(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model with every parameter drawn anew, so that no bias or scale is 0 or 1 by chance."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            spread = 1 / parameter[0].numel() ** 0.5 if parameter.ndim > 1 else 0.3
            parameter.add_(torch.randn(parameter.shape, generator=generator) * spread)
    return model.eval()


def timm_model(name: str, **settings: Any) -> nn.Module:
    """A timm model with random weights."""
    return randomised(timm.create_model(name, num_classes=10, **settings))


def hf_model(**settings: Any) -> nn.Module:
    """A small Hugging Face ViT with random weights."""
    sizes = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 80}
    config = ViTConfig(**(sizes | {"image_size": 32, "patch_size": 8, "num_labels": 7} | settings))
    return randomised(ViTForImageClassification(config))


def student(spec: Spec, weights: dict[str, np.ndarray]) -> Student:
    """The student of that spec with these weights."""
    model = Student(spec)
    model.load_weights(weights)
    return model.eval()


def logit_error(host: nn.Module, spec: Spec, weights: dict[str, np.ndarray]) -> float:
    """The largest difference between the host's logits and the student's."""
    images = torch.randn(
        2, spec.channels, spec.image_size, spec.image_size, generator=torch.Generator().manual_seed(1)
    )
    with torch.no_grad():
        expected = host(images)
        expected = getattr(expected, "logits", expected)
        assert expected.std() > 0.1, "logits that are all alike would agree by chance"
        return float((student(spec, weights)(images) - expected).abs().max())


HOSTS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit_tiny": ("vit_tiny_patch16_224", {}),
    "deit_tiny": ("deit_tiny_patch16_224", {}),
    "deit3_small": ("deit3_small_patch16_224", {}),
    "test_vit": ("test_vit", {}),
    "mean of all tokens, then norm": ("test_vit", {"global_pool": "avg", "class_token": False}),
    "mean without class token, then norm": ("test_vit", {"global_pool": "avg"}),
    "norm, then mean without class token": ("test_vit", {"global_pool": "avg", "fc_norm": False}),
    "norm, then mean of all tokens": (
        "test_vit",
        {"global_pool": "avg", "fc_norm": False, "class_token": False},
    ),
    "class token, then norm": ("test_vit", {"fc_norm": True}),
    "tanh GELU": ("test_vit", {"act_layer": "gelu_tanh"}),
    "another size": ("test_vit", {"img_size": 96, "patch_size": 8}),
    "grey": ("test_vit", {"in_chans": 1, "img_size": 32}),
    "LayerScale, class token without position": ("test_vit", {"init_values": 0.1, "no_embed_class": True}),
    "no biases": ("test_vit", {"qkv_bias": False, "proj_bias": False}),
    "other widths": ("test_vit", {"embed_dim": 72, "num_heads": 3, "mlp_ratio": 2.5, "depth": 3}),
}


@pytest.mark.parametrize("case", HOSTS)
def test_the_student_gives_the_timm_hosts_logits(case: str) -> None:
    name, settings = HOSTS[case]
    model = timm_model(name, **settings)
    assert logit_error(model, *convert_timm(model)) <= TOLERANCE


@pytest.mark.parametrize("settings", [{}, {"hidden_act": "gelu_new"}, {"qkv_bias": False}], ids=str)
def test_the_student_gives_the_hugging_face_hosts_logits(settings: dict[str, Any]) -> None:
    model = hf_model(**settings)
    assert logit_error(model, *convert_hf(model)) <= TOLERANCE


def test_eps_and_gelu_variant_are_the_hosts() -> None:
    spec, _ = convert_timm(timm_model("test_vit", act_layer="gelu_tanh"))
    assert (spec.norm_eps, spec.gelu) == (1e-6, "tanh")
    assert convert_hf(hf_model(layer_norm_eps=1e-5))[0].norm_eps == 1e-5


@pytest.mark.parametrize("name", ["test_vit", "deit3_small_patch16_224"])
def test_converted_weights_have_the_canonical_names_and_shapes(name: str) -> None:
    spec, weights = convert_timm(timm_model(name))
    assert {key: value.shape for key, value in weights.items()} == weight_shapes(spec)
    assert {value.dtype for value in weights.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("size", [64, 224])
@pytest.mark.parametrize("class_token", [True, False])
def test_positions_are_resampled_as_timm_does(size: int, class_token: bool) -> None:
    pooling = {"class_token": class_token, "global_pool": "token" if class_token else "avg"}
    small = timm_model("test_vit", **pooling)
    spec, weights = convert_timm(small)
    after = with_image_size(spec, size)
    found = resample_position(weights, spec, after)["position"]
    grid = [size // spec.patch_size] * 2
    expected = resample_abs_pos_embed(small.pos_embed, grid, num_prefix_tokens=int(class_token))[0]
    np.testing.assert_allclose(found, expected.detach().numpy(), atol=1e-6)


def test_a_resized_host_agrees_with_timm_at_that_size(tmp_path: Path) -> None:
    small = timm_model("test_vit")
    save_file(small.state_dict(), str(tmp_path / "weights.safetensors"))
    host = load_host(f"timm:test_vit@{tmp_path / 'weights.safetensors'}", None, 96)
    large = timm.create_model("test_vit", num_classes=10, img_size=96)
    state = dict(small.state_dict())
    state["pos_embed"] = resample_abs_pos_embed(state["pos_embed"], [6, 6])
    large.load_state_dict(state)
    assert logit_error(large.eval(), host.spec, host.weights) <= TOLERANCE


def test_positions_are_not_resampled_between_different_models() -> None:
    before, after = vit_spec(8, 4, 8, 1, 1, 2), vit_spec(16, 4, 16, 1, 1, 2)
    with pytest.raises(RequestError, match="differ in image size alone"):
        resample_position(random_weights(before, 0), before, after)


REFUSED = {
    "swin_tiny_patch4_window7_224": "SwinTransformer: its attention is over shifted windows",
    "deit_tiny_distilled_patch16_224": "distillation token and a second head",
    "vit_small_patch14_reg4_dinov2": "4 register tokens",
    "vit_base_patch16_clip_224": "normalises before the first block",
    "vit_base_patch16_clip_quickgelu_224": "QuickGELU",
    "vit_giant_patch14_dinov2": "GluMlp",
    "vit_small_patch16_18x2_224": "ParallelThingsBlock",
    "vit_tiny_r_s16_p8_224": "HybridEmbed",
    "vit_base_patch16_siglip_224": "pools by 'map'",
    "vit_relpos_small_patch16_224": "VisionTransformerRelPos",
    "vit_base_patch16_rope_224": "rotates queries and keys",
    "eva02_tiny_patch14_224": "rotates queries and keys",
    "beit_base_patch16_224": "class is Beit",
    "cait_xxs24_224": "class is Cait",
    "mixer_s32_224": "class is MlpMixer",
    "resnet18": "class is ResNet",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_does_not_fit_is_refused_by_name_and_reason_before_any_download(name: str) -> None:
    with pytest.raises(ModelRefused) as caught:
        load_host(f"timm:{name}", 10, None)
    assert caught.value.message.startswith(f"{name} does not fit the student: ")
    assert REFUSED[name] in caught.value.message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"qk_norm": True}, "block 0 normalises queries and keys"),
        ({"scale_attn_norm": True}, "block 0 normalises inside attention"),
        ({"scale_mlp_norm": True}, "block 0 normalises inside the MLP"),
        ({"pos_embed": "none"}, "no learned position embedding"),
        ({"reg_tokens": 2}, "2 register tokens"),
        ({"pre_norm": True}, "normalises before the first block"),
        ({"final_norm": False}, "no final LayerNorm"),
        ({"global_pool": "avg", "pool_include_prefix": True}, "its mean includes the class token"),
        ({"global_pool": "max"}, "pools by 'max'"),
        ({"act_layer": "relu"}, "is of class ReLU"),
        ({"dynamic_img_pad": True}, "pads images"),
        ({"norm_layer": "rmsnorm"}, "RmsNorm"),
        ({"img_size": (160, 96)}, "not square"),
    ],
    ids=str,
)
def test_a_plain_vit_with_an_unknown_part_is_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelRefused, match=reason):
        convert_timm(timm.create_model("test_vit", **settings))


def test_a_module_that_somebody_put_into_a_vit_is_refused() -> None:
    model = timm.create_model("test_vit")
    model.blocks[3].mlp.fc1 = nn.Bilinear(64, 64, 192)
    with pytest.raises(ModelRefused, match=r"blocks.3.mlp.fc1 is of class Bilinear"):
        convert_timm(model)


def test_a_weight_without_a_place_is_refused() -> None:
    model = timm.create_model("test_vit")
    model.register_parameter("temperature", nn.Parameter(torch.ones(1)))
    with pytest.raises(ModelRefused, match="no place for: temperature"):
        convert_timm(model)


def test_other_hugging_face_models_are_refused() -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    with pytest.raises(ModelRefused, match="DeiTForImageClassification"):
        convert_hf(DeiTForImageClassification(DeiTConfig(**sizes)))
    with pytest.raises(ModelRefused, match="activation is 'relu', not a GELU"):
        convert_hf(hf_model(hidden_act="relu"))


def test_preprocessing_is_the_one_that_timm_keeps_with_the_model() -> None:
    host = load_host("timm:deit_tiny_patch16_224", 10, 112, pretrained=False)
    assert host.preprocessing is not None
    config = timm.create_model("deit_tiny_patch16_224").pretrained_cfg
    assert (host.preprocessing.mean, host.preprocessing.std) == (config["mean"], config["std"])
    assert (host.preprocessing.crop, host.preprocessing.interpolation) == (0.9, "bicubic")
    assert (host.preprocessing.size, host.spec.image_size) == (112, 112)


def test_random_weights_of_a_named_model_follow_the_seed() -> None:
    first, again, other = (load_host("timm:test_vit", 5, None, False, seed) for seed in (0, 0, 1))
    assert same(first.weights, again.weights)
    assert not same(first.weights, other.weights)
    assert first.spec.classes == 5


def test_loading_a_host_leaves_the_random_numbers_of_others_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    load_host("timm:test_vit", 5, None, pretrained=False, seed=3)
    assert torch.equal(torch.rand(1), expected)


def test_a_fresh_model_follows_its_text_and_seed() -> None:
    text = "vit:image_size=8,patch=2,width=32,depth=3,heads=4,channels=1"
    host, again, other = (load_host(text, 10, None, seed=seed) for seed in (0, 0, 1))
    assert host.spec == vit_spec(8, 2, 32, 3, 4, 10, channels=1)
    assert host.preprocessing is None
    assert same(host.weights, again.weights)
    assert not same(host.weights, other.weights)
    assert {k: v.shape for k, v in host.weights.items()} == weight_shapes(host.spec)
    assert 0.01 < host.weights["blocks.0.qkv.weight"].std() < 0.02
    assert np.abs(host.weights["blocks.0.qkv.weight"]).max() <= 0.04


def test_a_fresh_model_may_pool_by_mean_and_change_its_size() -> None:
    host = load_host("vit:image_size=8,patch=2,width=8,depth=1,heads=1,pooling=mean,mlp=24", 3, 16)
    assert (host.spec.pooling, host.spec.class_token, host.spec.image_size) == ("mean", False, 16)
    assert host.spec.blocks[0].mlp_width == 24


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("vit:width=8", "needs image_size, patch, depth, heads"),
        ("vit:image_size=8,patch=2,width=8,depth=1,heads=1,wings=2", "'wings' is not a setting"),
        ("vit:image_size=8,patch=two,width=8,depth=1,heads=1", "patch is 'two', not a number"),
        ("vit:image_size=8,patch=2,width=8,depth=0,heads=1", "depth is 0"),
        ("vit:image_size=9,patch=2,width=8,depth=1,heads=1", "9 is not divisible by patch size 2"),
        ("vit:image_size=8,patch=2,width=8,depth=1,heads=3", "width 8 is not divisible by 3 heads"),
        ("vit:image_size=8,patch=2,width=8,depth=1,heads=1,pooling=max", "pooling is 'max'"),
    ],
)
def test_a_fresh_model_that_cannot_be_is_refused(text: str, found: str) -> None:
    with pytest.raises(RequestError, match=found):
        load_host(text, 10, None)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A timm test ViT with 10 classes on disk, as safetensors and as a wrapped state dict."""
    folder = tmp_path_factory.mktemp("checkpoint")
    state = timm_model("test_vit").state_dict()
    save_file(state, str(folder / "test_vit.safetensors"))
    torch.save({"model": {f"module.{k}": v for k, v in state.items()}, "epoch": 3}, folder / "other.pth")
    return folder


def test_a_file_is_read_by_the_name_it_has_and_by_the_name_it_is_given(checkpoint: Path) -> None:
    by_name = load_host(str(checkpoint / "test_vit.safetensors"), 10, None)
    given = load_host(f"timm:test_vit@{checkpoint / 'other.pth'}", 10, None)
    assert by_name.spec == given.spec
    assert same(by_name.weights, given.weights)
    assert by_name.preprocessing == given.preprocessing


def test_a_file_that_is_no_path_is_looked_for_below_privit_data(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RequestError, match="does not exist") as caught:
        load_host("timm:test_vit@other.pth", 10, None)
    assert "$PRIVIT_DATA" in caught.value.hint
    monkeypatch.setenv("PRIVIT_DATA", str(checkpoint))
    found = load_host("timm:test_vit@other.pth", 10, None)
    assert same(found.weights, load_host(f"timm:test_vit@{checkpoint / 'other.pth'}", 10, None).weights)
    # What a run writes down names no folder of this machine.
    assert found.name == "timm:test_vit@other.pth"
    assert same(found.weights, load_host("test_vit.safetensors", 10, None).weights)


def test_weights_beside_the_data_stand_for_those_that_timm_downloads(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVIT_DATA", str(checkpoint))
    found = load_host("timm:test_vit", 10, None)
    assert same(found.weights, load_host("timm:test_vit@test_vit.safetensors", 10, None).weights)
    (checkpoint / "a_folder").mkdir(exist_ok=True)
    with pytest.raises(RequestError, match="does not exist"):
        load_host("timm:test_vit@a_folder", 10, None)
    fresh = load_host("timm:test_vit", 10, None, pretrained=False)
    assert not same(found.weights, fresh.weights), "weights that nobody asked for were read"


def test_a_file_of_any_name_is_read_by_its_shapes_and_the_number_of_heads(checkpoint: Path) -> None:
    by_shapes = load_host(f"{checkpoint / 'other.pth'}:heads=2", 10, None)
    by_name = load_host(str(checkpoint / "test_vit.safetensors"), 10, None)
    assert by_shapes.spec == by_name.spec
    assert same(by_shapes.weights, by_name.weights)


def test_a_file_that_does_not_show_its_heads_is_refused(checkpoint: Path) -> None:
    with pytest.raises(RequestError, match="does not say how many heads") as caught:
        load_host(str(checkpoint / "other.pth"), 10, None)
    assert "other.pth:heads=3" in caught.value.hint


def test_a_file_of_another_model_is_refused(checkpoint: Path) -> None:
    with pytest.raises(RequestError, match="does not hold the weights of vit_tiny_patch16_224"):
        load_host(f"timm:vit_tiny_patch16_224@{checkpoint / 'test_vit.safetensors'}", None, None)


def test_a_head_of_other_classes_is_kept_unless_a_new_one_is_asked_for(checkpoint: Path) -> None:
    name = str(checkpoint / "test_vit.safetensors")
    with pytest.raises(RequestError, match="has a head of 10 classes, but 4 are needed") as caught:
        load_host(name, 4, None)
    assert "new_head" in caught.value.hint
    old, new = load_host(name, None, None), load_host(name, 4, None, new_head=True)
    assert new.spec == replace(old.spec, classes=4)
    assert new.weights["head.weight"].shape == (4, 64)
    assert same({k: v for k, v in new.weights.items() if "head" not in k}, old.weights)


def test_an_image_size_that_the_patches_do_not_fill_is_refused(checkpoint: Path) -> None:
    with pytest.raises(RequestError, match="image size 100 is not divisible by patch size 16"):
        load_host(str(checkpoint / "test_vit.safetensors"), 10, 100)


@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
def test_a_file_that_was_cut_short_is_refused(checkpoint: Path, tmp_path: Path, suffix: str) -> None:
    whole = next(checkpoint.glob(f"*.{suffix}")).read_bytes()
    (tmp_path / f"test_vit.{suffix}").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RequestError, match="cut short"):
        load_host(str(tmp_path / f"test_vit.{suffix}"), 10, None)


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "was-run",))

    torch.save({"head.weight": Hostile()}, tmp_path / "test_vit.pth")
    with pytest.raises(RequestError, match="holds more than tensors"):
        load_host(str(tmp_path / "test_vit.pth"), None, None)
    assert not (tmp_path / "was-run").exists()


def test_a_hugging_face_folder_on_disk(tmp_path: Path) -> None:
    model = hf_model()
    model.save_pretrained(tmp_path)  # type: ignore[operator]
    settings = '{"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 2, 3], "resample": 3}'
    (tmp_path / "preprocessor_config.json").write_text(settings)
    host = load_host(f"hf:{tmp_path}", 7, None)
    assert logit_error(model, host.spec, host.weights) <= TOLERANCE
    assert host.preprocessing is not None
    assert host.preprocessing.mean == (0.1, 0.2, 0.3)
    assert host.preprocessing.interpolation == "bicubic"
    assert load_host(f"hf:{tmp_path}", 7, 64).spec.image_size == 64


@pytest.mark.parametrize("name", ["timm:vit_tiny_patch16_224", "hf:nobody/nothing"])
def test_a_download_that_fails_says_what_else_would_do(name: str) -> None:
    with pytest.raises(RequestError, match=f"the weights of {name} could not be had") as caught:
        load_host(name, 10, None)
    assert "pretrained off" in caught.value.hint
    assert "timm:NAME@FILE.safetensors" in caught.value.hint


def test_an_unknown_timm_name_gets_a_suggestion() -> None:
    with pytest.raises(RequestError, match="timm has no model called 'deit_tny_patch16_224'") as caught:
        load_host("timm:deit_tny_patch16_224", 10, None)
    assert "deit_tiny_patch16_224" in caught.value.hint


def test_an_unknown_tag_of_a_known_model_is_refused() -> None:
    with pytest.raises(RequestError, match=r"Invalid pretrained tag \(of_mine\)"):
        load_host("timm:vit_tiny_patch16_224.of_mine", 10, None)


def test_a_name_of_no_known_form_is_refused_with_the_forms() -> None:
    with pytest.raises(RequestError, match="no model is called 'deit', and it is not a file") as caught:
        load_host("deit", 10, None)
    assert "timm:NAME, hf:NAME" in caught.value.hint


@pytest.mark.shared
def test_the_pretrained_deit_beside_the_repository_knows_a_dog(shared_data: Path) -> None:
    from privit.data.datasets import load_data, preprocess

    host = load_host(str(shared_data / "deit_tiny_patch16_224.safetensors"), None, None)
    assert host.preprocessing is not None
    test = load_data(str(shared_data / "cifar10"), train_limit=10).test
    dogs = np.flatnonzero(test.labels == 5)[:6]
    inputs = np.stack([preprocess(test.image(i), host.preprocessing) for i in dogs])
    with torch.no_grad():
        found = student(host.spec, host.weights)(torch.from_numpy(inputs)).argmax(1)
    # ImageNet's dogs are its classes 151 to 268; by chance one in eight would be among them.
    assert int(((found >= 151) & (found <= 268)).sum()) >= 5


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    """Whether the weights of `first` are in `second`, bit for bit."""
    return all(np.array_equal(value, second[name]) for name, value in first.items())
