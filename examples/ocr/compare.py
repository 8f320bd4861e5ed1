"""Reads the pictures of `make.py` by a service and by the package `rapidocr`, and compares texts and speeds.

    python compare.py FOLDER SEXTANT SERVER [SECONDS]

SEXTANT is the program that registers what `make.py` has made, SERVER the address of a service with steps in Python. It prints
one JSON object per line: `experiment`, `metric`, `value`, `unit`.
"""

import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import rapidocr

HERE = Path(__file__).parent
MODELS = {"text-detection": "detect", "text-direction": "turn", "text-reading": "read"}
# Turns of which the median counts.
TURNS = 3


def register(sextant, server, folder):
    """Everything that the pipeline names, and itself."""

    def run(*arguments):
        subprocess.run([sextant, "--server", server, *map(str, arguments)], check=True, stdout=sys.stderr)

    for name, files in MODELS.items():
        model, sample = folder / f"{files}.onnx", folder / f"{files}.npz"
        run("register", "--application", name, "--name", name, "--model", model, "--validation", sample, "--no-labels")
    run("artefact", "put", HERE / "ocr.py", "ocr/ocr.py")
    run("artefact", "put", folder / "characters.txt", "ocr/characters.txt")
    run("pipeline", "register", HERE / "ocr.yaml")


class Service:
    """A connection to the service, with which one picture is read at a time."""

    def __init__(self, server):
        self.link = http.client.HTTPConnection(urlsplit(server).netloc, timeout=600)

    def ask(self, file, further=""):
        """The answer to a picture; again while what reads it is being loaded."""
        while True:
            self.link.request("POST", f"/v1/pipelines/ocr/queries?best_effort=true{further}", file)
            response = self.link.getresponse()
            body = json.loads(response.read())
            if response.status == 200:
                return body
            if response.status < 429:
                raise RuntimeError(body)
            time.sleep(0.05)

    def read(self, file):
        """The lines of a picture."""
        return next(it["data"] for it in self.ask(file)["outputs"] if it["name"] == "text")


def served_per_s(server, files, seconds):
    """Pictures a second that clients get, one for each core and one more."""
    end, counts = time.monotonic() + seconds, []

    def client(at):
        service, count = Service(server), 0
        while time.monotonic() < end:
            service.read(files[(at + count) % len(files)])
            count += 1
        counts.append(count)

    begun = time.monotonic()
    clients = [threading.Thread(target=client, args=(at,)) for at in range(os.cpu_count() + 1)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    return sum(counts) / (time.monotonic() - begun)


def own_per_s(own, files, seconds):
    """Pictures a second that the package reads, which has all cores for each."""
    begun, count = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        own(files[count % len(files)])
        count += 1
    return count / (time.monotonic() - begun)


def engines_share(service, files):
    """The share of a query's time during which engines compute."""
    shares = []
    for file in files:
        steps = service.ask(file, "&explain=true")["explanation"]["steps"]
        asked = sum(step["compute_us"] for step in steps if step.get("variant"))
        shares.append(asked / sum(step["total_us"] for step in steps))
    return statistics.median(shares)


def tell(metric, value, unit):
    """Prints a figure."""
    print(json.dumps({"experiment": "ocr", "metric": metric, "value": round(value, 4), "unit": unit}), flush=True)


def main(folder, sextant, server, seconds):
    """Compares texts, then speeds in turns."""
    register(sextant, server, folder)
    expected = json.loads((folder / "expected.json").read_text())
    files = [(folder / name).read_bytes() for name in expected]
    service = Service(server)
    read = [service.read(file) for file in files]
    for name, got, wanted in zip(expected, read, expected.values()):
        if got != wanted:
            print(f"{name}: {got} in place of {wanted}", file=sys.stderr)
    tell("ocr_same_texts", sum(got == wanted for got, wanted in zip(read, expected.values())), "pictures")
    tell("ocr_pictures", len(files), "pictures")
    tell("ocr_engines_share", engines_share(service, files), "share")
    own = rapidocr.RapidOCR()
    own(files[0])
    pairs = [(served_per_s(server, files, seconds), own_per_s(own, files, seconds)) for _ in range(TURNS)]
    tell("ocr_served_per_s", statistics.median(served for served, _ in pairs), "pictures/s")
    tell("ocr_python_per_s", statistics.median(alone for _, alone in pairs), "pictures/s")
    tell("ocr_vs_python_ratio", statistics.median(served / alone for served, alone in pairs), "ratio")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]) if len(sys.argv) > 4 else 10.0)
