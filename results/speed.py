"""The blocks about speed, from bench-*.json (`make bench`) and from the seconds of one run."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from fscil import grid
from fscil.errors import UserError
from fscil.results import read_result
from results.summaries import paragraph

FOLDER = Path(__file__).resolve().parent
WHOLE = FOLDER / "methods" / "compare-all.json"  # comparing all methods, by the clock
ALONE = "cifar100/limit-plus-seed31.json"  # the run that had a GPU to itself and nothing cached


@cache
def figures(file: str) -> dict[str, Any]:
    """By name; where time and memory share a name, the first entry has both measurements."""
    found: dict[str, Any] = {}
    for figure in json.loads((FOLDER / f"bench-{file}.json").read_bytes())["figures"]:
        found.setdefault(figure["name"], figure)["measured"] |= figure["measured"]
    return found


def ratios(file: str, *names: str) -> str:
    found = [figures(file)[name] for name in names]
    values = (figure["ratio"] for figure in found)
    return ", ".join(f"{v:.0f}" if v >= 10 else f"{v:.2f}" for v in values) + f" {found[0]['meaning']}"


def measured(file: str, name: str, what: str) -> float:
    return float(figures(file)[name]["measured"][what])


def stages() -> dict[str, float]:
    """Seconds of the run that had a GPU to itself; time outside all stages is "rest"."""
    result = read_result(FOLDER / ALONE)
    if cached := [name for name, stage in result.seconds.items() if stage["cached"]]:
        raise UserError(f"results/{ALONE}: {cached[0]} came from the cache; time that run with FSCIL_CACHE=off")
    seconds = {name: stage["seconds"] for name, stage in result.seconds.items()}
    return {**seconds, "rest": 2 * seconds["total"] - sum(seconds.values())}


def short() -> str:
    seconds, whole = stages(), json.loads(WHOLE.read_text())
    return paragraph(
        f"""`fscil run limit-plus cifar100` takes {seconds["total"]:.0f} seconds on one H200,
        {seconds["pretrain"]:.0f} of them for pre-training; all methods take {whole["seconds"] / 60:.1f} minutes."""
    )


def cpu() -> str:
    sizes = (32, 84, 224)
    streaming = "streaming over resident, resnet20 at 32 px, 2 cores decode"
    prediction = "calibrated prediction over an uncalibrated one, {}, C = 100"
    many = "{} with 10 times the classes, d = 64"

    def with_many_classes(what: str) -> str:
        milliseconds = measured("many-classes", many.format(what), f"C = 100000: {what}, ms")
        return f"{milliseconds:.0f} ms" if milliseconds < 100 else f"{milliseconds / 1000:.2g} s"

    lines = [
        ["on two CPU cores", ""],
        [
            "calibration in closed form over attention per query, 512 queries, 1000 classes of 512 dimensions",
            ratios("cpu", "closed form over attention, C = 1000, d = 512"),
        ],
        [
            "memory of attention per query over the closed form",
            ratios("cpu", "memory of attention, C = 1000, d = 512"),
        ],
        [
            "the calibrated head over a plain linear one, at that size",
            ratios("cpu", "calibrated head over a linear one, C = 1000, d = 512"),
        ],
        [
            "a calibrated prediction over an uncalibrated one, ResNet20, 100 classes: 512 images, one image",
            ratios("cpu", prediction.format("512 images"), prediction.format("1 image")),
        ],
        [
            "100,000 classes of 64 dimensions: to build the kept terms, to teach one more class",
            f"{with_many_classes('build')}, {with_many_classes('teach a class')}",
        ],
        [
            "100,000 classes: one query, 512 queries",
            f"{with_many_classes('1 query')}, {with_many_classes('512 queries')}",
        ],
        [
            "AutoAugment with crop, flip and cutout over torchvision's image by image, one core: 32, 84, 224 px",
            ratios("cpu", *(f"augmentation at {size} px, one CPU core" for size in sizes)),
        ],
        ["photos decoded while training over photos held in memory", ratios("cpu", streaming)],
        ["two processes over one, a core each", ratios("cpu", "two processes over one, a core each")],
    ]
    return grid.markdown(lines)


def sampling() -> str:
    """LIMIT's fake tasks beside CEC's pseudo-incremental ones, one of each."""
    lines = [["", "images", "chosen, ms", "chosen and augmented, ms", "an augmented image, us"]]
    found = {name: sampled(name) for name in ("limit", "limit-paper")}
    lines += [["`cec`, pseudo-incremental", *found["limit"]["PIL"]]]
    lines += [[f"`{name}`, fake", *cells["FIT"]] for name, cells in found.items()]
    return grid.markdown(lines)


def sampled(preset: str) -> dict[str, list[str]]:
    """The cells of a fake task (FIT) of this preset and of a pseudo-incremental one (PIL)."""
    found: dict[str, list[str]] = {}
    whole = [f"{what} FIT of {preset} over PIL, cpu, a task" for what in ("drawing", "drawing and augmenting")]
    items = figures("sampling")[f"drawing and augmenting FIT of {preset} over PIL, cpu, an item"]["measured"]
    for key, us in items.items():
        kind, _, images = key.partition(", us an item of ")
        ms = [measured("sampling", name, f"{kind}, ms a task") for name in whole]
        found[kind] = [images, *(f"{value:.2g}" for value in ms), f"{us:.1f}"]
    return found


def learner() -> str:
    """Teaching and predicting beside the encoder."""
    names = {"embedded": "embedded encoder, images of 32 px", "resnet18": "ResNet18, photos of 12 megapixels"}
    lines = [["", "times the encoder's time", "ms", "the encoder, ms", "decoding, ms", "share of the total"]]
    for encoder, described in names.items():
        for verb, what in (("teach", "five photos"), ("predict", "one photo")):
            name = f"{verb} {what}, {encoder}"
            found = figures("learner")[name]
            times = [found["measured"][key] for key in (f"{verb}, ms", "the encoder alone, ms", "decoding, ms")]
            share = found["measured"]["share of the total with decoding, %"]
            shown = [f"{value:.0f}" if value >= 10 else f"{value:.1f}" for value in times]
            lines.append([f"{verb} {what}: {described}", f"{found['ratio']:.2f}", *shown, f"{share:.0f} %"])
    return grid.markdown(lines)


def many_classes() -> str:
    """A learner of many classes, and its folder."""
    keys = ("load, ms", "first prediction, ms", "prediction, ms", "teaching five photos, ms")
    sizes = ("classes.safetensors, MB", "the model folder, MB")
    heads = ["load, s", "first prediction, s", "the next, s", "teach five photos, s", "`classes.safetensors`, MB"]
    lines = [["beside the encoder", *heads, "model folder, MB"]]
    for classes, dim in ((100, 64), (10_000, 64), (10_000, 512)):
        found = figures("learner")[f"a learner of {classes} classes, d = {dim}"]["measured"]
        seconds = [f"{max(0.0, found[key]) / 1000:.2f}" for key in keys]
        lines.append([f"{classes:,} classes, {dim} numbers", *seconds, *(f"{found[key]:.1f}" for key in sizes)])
    return grid.markdown(lines)


def whole_run() -> str:
    names = {
        "read": "reading",
        "pretrain": "pre-training",
        "meta-train": "meta-training",
        "sessions": "sessions: prototypes of new classes, and the tests",
        "rest": "embedding of the base session, model, curve and report",
        "total": "**total**",
    }
    seconds = stages()
    lines = [[name, f"{seconds[key]:.1f}"] for key, name in names.items() if key in seconds]
    return grid.markdown([["on one H200", "seconds"], *lines])


def gpu() -> str:
    captured = [f"captured step over a plain one, batch {batch}" for batch in (128, 512)]
    kernels = "a step with our kernels over torch's, batch 512, 32 px"
    batches = " and ".join(f"{measured('gpu', name, 'ours, ms'):.2f}" for name in captured)
    both = " and ".join(f"{measured('gpu', kernels, f'{whose}, ms'):.2f}" for whose in ("ours", "other"))
    augmentation = [
        measured("gpu", f"augmentation at {size} px, GPU over one CPU worker", "ours, images/s")
        for size in (32, 84, 224)
    ]
    streaming = [
        f"streaming over resident, {name}, 16 cores decode" for name in ("resnet20 at 32 px", "resnet18 at 224 px")
    ]
    prepared = "prepared photos over resident ones, resnet18 at 224 px, 16 cores copy"
    lines = [
        ["on one H200", ""],
        [f"a captured step over a plain one, ResNet20, batch 128 and 512 ({batches} ms)", ratios("gpu", *captured)],
        [f"a step with our kernels over one with torch's, batch 512 ({both} ms)", ratios("gpu", kernels)],
        [
            "AutoAugment with crop, flip and cutout: 32, 84, 224 px",
            ", ".join(f"{rate / 1e6:.2f}" for rate in augmentation) + " million images/s",
        ],
        [
            "photos decoded while training over photos held in memory, 16 cores: ResNet20 at 32 px, ResNet18 at 224 px",
            ratios("gpu", *streaming),
        ],
        ["prepared photos read while training over photos on the GPU, ResNet18 at 224 px", ratios("gpu", prepared)],
    ]
    return grid.markdown(lines)
