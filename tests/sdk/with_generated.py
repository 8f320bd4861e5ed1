"""The way of a model through a service with the SDK that openapi-python-client generates: registered, asked, run over a
file. Arguments: the service's address, the folder of the example."""

import sys
import time
from io import BytesIO
from pathlib import Path

import numpy
from generated import Client
from generated.api.applications import applications_create, applications_get
from generated.api.artefacts import artefacts_get, artefacts_put
from generated.api.jobs import jobs_create, jobs_get
from generated.api.models import models_create, models_get, models_list
from generated.api.open_inference_protocol import v2_infer, v2_ready
from generated.api.queries import queries_create
from generated.api.variants import variants_of_model
from generated.models import (
    Answer,
    InferRequest,
    Job,
    NewApplication,
    NewJob,
    NewModelForm,
    Problem,
    Query,
    Targets,
    Tensor,
)
from generated.types import File


def ended(client, name):
    """The job when it is over."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        job = jobs_get.sync(name, client=client, wait_ms=2000)
        assert isinstance(job, Job), job
        if job.state not in ("queued", "running", "paused"):
            return job
    raise TimeoutError(name)


def pixels(image):
    return Tensor(name="pixels", shape=[1, image.size], datatype="FP32", data=image.tolist())


def main(address, folder):
    client = Client(base_url=address)
    assert v2_ready.sync(client=client).ready
    new = NewApplication(name="digits", metric="top1", description="Handwritten digits")
    assert applications_create.sync(client=client, body=new).name == "digits"
    file = lambda name: File(payload=BytesIO((folder / name).read_bytes()), file_name=name)
    form = NewModelForm(
        name="mlp",
        application="digits",
        model=file("mlp.onnx"),
        validation=file("validation.npz"),
        classes="\n".join(str(digit) for digit in range(10)),
    )
    accepted = models_create.sync(client=client, body=form)
    assert not isinstance(accepted, Problem), accepted
    job = ended(client, accepted.job)
    assert job.state == "succeeded", job
    model = models_get.sync("mlp", client=client)
    assert model.status == "ready" and model.classes[9] == "9", model
    assert [model.name for model in models_list.sync(client=client).models] == ["mlp"]
    variants = variants_of_model.sync("mlp", client=client).variants
    assert len(variants) == model.variants and all(it.accuracy.value > 0.8 for it in variants)
    signature = applications_get.sync("digits", client=client).signature
    assert [spec.name for spec in signature.inputs] == ["pixels"]

    test = numpy.load(folder / "test.npz")
    images, labels = test["pixels"][:50], test["labels"][:50]
    right = 0
    for image, label in zip(images, labels):
        query = Query(
            application="digits",
            targets=Targets(latency_ms=5000.0, min_accuracy=0.9),
            inputs=[pixels(image)],
            classification=1,
        )
        answer = queries_create.sync(client=client, body=query)
        assert isinstance(answer, Answer) and answer.targets_met, answer
        right += answer.classification[0][0].name == str(label)
    assert right >= 45, right

    request = InferRequest(id="1", inputs=[pixels(images[0])])
    answer = v2_infer.sync("digits", client=client, body=request)
    assert answer.id == "1" and answer.outputs[0].shape == [1, 10], answer

    impossible = Query(application="digits", targets=Targets(min_accuracy=1.0), inputs=[pixels(images[0])])
    refused = queries_create.sync(client=client, body=impossible)
    assert isinstance(refused, Problem), refused
    assert (refused.status, refused.code) == (422, "target_infeasible") and refused.closest, refused

    saved = BytesIO()
    numpy.savez(saved, pixels=images)
    saved.seek(0)
    stored = artefacts_put.sync("in.npz", client=client, body=File(payload=saved))
    assert not isinstance(stored, Problem), stored
    new = NewJob(application="digits", input_="in.npz", output="out.npz")
    job = ended(client, jobs_create.sync(client=client, body=new).id)
    assert job.state == "succeeded", job
    answers = numpy.load(artefacts_get.sync("out.npz", client=client).payload)
    name = answer.outputs[0].name
    assert answers[name].shape == (50, 10), answers[name].shape
    assert (answers[name].argmax(axis=1) == labels).mean() >= 0.9


main(sys.argv[1], Path(sys.argv[2]))
