"""Folders of Hugging Face: by optimum where it is installed and knows the model, else by transformers and PyTorch."""

import shutil
import tempfile
from pathlib import Path

from . import compare, pytorch, records, say

# Heads of a model by the end of its class's name: what transformers loads it with, and what optimum calls the task.
HEADS = [
    ("ForSequenceClassification", "AutoModelForSequenceClassification", "text-classification"),
    ("ForTokenClassification", "AutoModelForTokenClassification", "token-classification"),
    ("ForQuestionAnswering", "AutoModelForQuestionAnswering", "question-answering"),
    ("ForMultipleChoice", "AutoModelForMultipleChoice", "multiple-choice"),
    ("ForMaskedLM", "AutoModelForMaskedLM", "fill-mask"),
    ("ForCausalLM", "AutoModelForCausalLM", "text-generation"),
    ("LMHeadModel", "AutoModelForCausalLM", "text-generation"),
    ("ForImageClassification", "AutoModelForImageClassification", "image-classification"),
    ("ForSemanticSegmentation", "AutoModelForSemanticSegmentation", "semantic-segmentation"),
    ("ForObjectDetection", "AutoModelForObjectDetection", "object-detection"),
    ("ForAudioClassification", "AutoModelForAudioClassification", "audio-classification"),
    ("ForSpeechClassification", "AutoModelForAudioClassification", "audio-classification"),
    ("ForCTC", "AutoModelForCTC", "automatic-speech-recognition"),
    ("Model", "AutoModel", "feature-extraction"),
]
# Heads whose answers need many runs of the model.
SEVERAL_RUNS = ("ForConditionalGeneration", "ForSeq2SeqLM", "MTModel")


def head(architecture):
    if architecture.endswith(SEVERAL_RUNS):
        say.refuse(
            f"a `{architecture}` answers by many runs of an encoder and a decoder: export its parts with optimum-onnx and register "
            "each as a model of its own"
        )
    for end, loader, task in HEADS:
        if architecture.endswith(end):
            return loader, task
    return say.refuse(
        f"`config.json` says that it is a `{architecture or 'model without a name'}`, whose task is not known: export it with "
        "optimum-onnx, `optimum-cli export onnx --task TASK`"
    )


def convert(what):
    loader, task = head(what.get("architecture") or "")
    say.require("transformers", "torch", "onnx", besides=("onnxscript",))
    transformers = say.need("transformers")
    found = pictures(what) if what["validation"] and what["validation"].is_dir() else pytorch.sample_set(what)
    automatic = getattr(transformers, loader)
    model = automatic.from_pretrained(str(what["model"]), trust_remote_code=what["runs_code"], local_files_only=True).eval()
    if say.has("optimum.exporters.onnx") and by_optimum(model, task, found, what):
        return
    pytorch.finish(pytorch.Module(say.need("torch"), model), what, found)


def pictures(what):
    """A sample for a folder of images: of the size that is asked for, or that of the model's configuration."""
    import json

    import numpy

    shape = what.get("sample")
    if not shape:
        path = what["model"] / "preprocessor_config.json"
        size = json.loads(path.read_text()).get("size", {}) if path.is_file() else {}
        size = {"height": size, "width": size} if isinstance(size, int) else size
        edge = size.get("shortest_edge")
        shape = [3, size.get("height", edge), size.get("width", edge)]
        if None in shape:
            say.refuse("neither `--image-size` nor `preprocessor_config.json` says how large its images are")
    random = numpy.random.default_rng(1)
    return [records.Input("pixel_values", [random.random(shape, dtype="float32") for _ in range(pytorch.LEAST_ROWS)])]


def by_optimum(model, task, found, what):
    """Whether optimum has written it with the inputs of the validation set."""
    from optimum.exporters.onnx import main_export

    with tempfile.TemporaryDirectory(dir=what["target"].parent.parent) as folder:
        try:
            main_export(
                str(what["model"]),
                output=folder,
                task=task,
                do_validation=False,
                local_files_only=True,
                trust_remote_code=what["runs_code"],
            )
            written = Path(folder) / "model.onnx"
            names = {it.name for it in compare.load(written).graph.input}
        except Exception as error:
            say.tell(note=f"optimum does not write it ({say.first_line(error)}): PyTorch does")
            return False
        if isinstance(found, records.Table) or names != {it.name for it in found}:
            shown = ", ".join(f"`{name}`" for name in sorted(names))
            say.tell(note=f"optimum writes it with the inputs {shown}, and the validation set has others: PyTorch writes it with those")
            return False
        say.converter("optimum-onnx")
        for file in [written, *Path(folder).glob("model.onnx_data")]:
            shutil.move(str(file), what["target"].parent / file.name)
    torch = say.need("torch")
    wrapped = pytorch.Module(torch, model)
    shown = compare.signature(what["target"])
    say.tell(did=f"{wrapped.name} was written as ONNX by optimum-onnx for {task}, with {shown}")
    pytorch.check(wrapped, pytorch.Sample(wrapped, found), what["target"])
    return True
