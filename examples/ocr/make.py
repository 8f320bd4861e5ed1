"""Makes what the pipeline `ocr` needs of the package `rapidocr`: its models, their characters, samples of their inputs.

    pip install -r requirements.txt
    python make.py FOLDER [PICTURES]

The folder gets `detect.onnx`, `turn.onnx` and `read.onnx`, an archive of inputs for each, `characters.txt`, pictures of text
and `expected.json`, the text that the package itself reads in them.
"""

import json
import random
import shutil
import sys
from pathlib import Path

import numpy
import onnxruntime
import rapidocr
from PIL import Image, ImageDraw, ImageFont

import ocr

MODELS = Path(rapidocr.__file__).parent / "models"
FILES = {
    "detect.onnx": "PP-OCRv6_det_small.onnx",
    "turn.onnx": "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
    "read.onnx": "PP-OCRv6_rec_small.onnx",
}
WORDS = """invoice total amount due payment customer number street city account balance order shipped quantity price
delivery tax reference contact telephone please return signature received department quarterly report""".split()
SEED = 45


def picture(chance):
    """A page with a few lines of text, some of them upside down."""
    size = chance.choice([(960, 736), (800, 768), (1100, 750)])
    page = Image.new("RGB", size, (chance.randint(225, 255),) * 3)
    top = 40
    while top < size[1] - 90:
        font = ImageFont.load_default(chance.randint(26, 40))
        # What turns lines is sure of short ones.
        is_turned = chance.random() < 0.2
        words = [chance.choice(WORDS) for _ in range(1 if is_turned else chance.randint(2, 5))]
        text = " ".join([*words, str(chance.randint(10, 99999))]).capitalize()
        width, height = (int(it) + 12 for it in font.getbbox(text)[2:])
        line = Image.new("RGB", (width, height), page.getpixel((0, 0)))
        ImageDraw.Draw(line).text((6, 4), text, font=font, fill=(chance.randint(0, 70),) * 3)
        if is_turned:
            line = line.rotate(180)
        page.paste(line, (chance.randint(20, 60), top))
        top += height + chance.randint(30, 60)
    return page


def session(name):
    """A model of the package."""
    return onnxruntime.InferenceSession(MODELS / FILES[name])


def steps(image, models):
    """The inputs of the three models for one picture, and what the pipeline answers."""
    original, x = ocr.prepare(numpy.array([image], object))
    corners, lines = ocr.find(original, models["detect.onnx"].run(None, {"x": x})[0])
    upright = models["turn.onnx"].run(None, {"x": lines})[0]
    turned = ocr.turn(original, corners, upright)
    return x, lines, turned


def main(folder, count):
    """Makes all of it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, of in FILES.items():
        shutil.copy(MODELS / of, folder / name)
    models = {name: session(name) for name in FILES}
    characters = models["read.onnx"].get_modelmeta().custom_metadata_map["character"].splitlines()
    (folder / "characters.txt").write_text("\n".join(["", *characters, " ", ""]), "utf-8", newline="\n")
    chance, own, expected = random.Random(SEED), rapidocr.RapidOCR(), {}
    samples = {name: [] for name in FILES}
    for at in range(count):
        name = folder / f"picture-{at:02}.jpg"
        picture(chance).save(name, quality=90)
        expected[name.name] = list(own(str(name)).txts or ())
        for model, x in zip(FILES, steps(name.read_bytes(), models)):
            samples[model].append(x)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1))
    for model, given in samples.items():
        # Records of one size, those of the first picture, and few of those that are whole pages.
        most = 3 if model == "detect.onnx" else 16
        records = numpy.concatenate([x for x in given if x.shape[1:] == given[0].shape[1:]])[:most]
        numpy.savez(folder / model.replace(".onnx", ".npz"), x=records)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20)
