"""Makes the ONNX models that Triton's QA asks for, by Triton's own generators where these have an ONNX form.

    python models.py QA FOLDER

QA is the folder `qa` of Triton's server. Written are FOLDER/GROUP/NAME@VERSION.onnx with NAME@VERSION.npz, records without
labels, and NAME@VERSION.args, further arguments of `sextant register`. Of what has several versions, NAME.gone has the numbers of
those that Triton's version policy leaves out.
"""

import contextlib
import os
import sys
import types
from pathlib import Path

sys.path.insert(0, f"{sys.argv[1]}/common")

import numpy as np
import onnx
import test_util
from onnx import TensorProto, helper

import gen_qa_identity_models as identities
import gen_qa_models as sums

FOLDER = Path(sys.argv[2])
GENERATED = FOLDER / "generated"
OPSET = 17
RECORDS = 16
RANDOM = np.random.default_rng(1)
TEXT = np.dtype(object)
BYTE, SHORT, INT, LONG, HALF, FLOAT = np.int8, np.int16, np.int32, np.int64, np.float16, np.float32

for module in (sums, identities):
    module.FLAGS = types.SimpleNamespace(onnx_opset=OPSET, onnx=True)
    module.onnx, module.tu = onnx, test_util


def values(dtype, shape):
    if dtype == TEXT:
        return RANDOM.integers(-1000, 1000, shape).astype("U8")
    if dtype == bool:
        return RANDOM.integers(0, 2, shape).astype(bool)
    return RANDOM.integers(-30, 30, shape).astype(dtype)


def put(group, name, inputs, answer, classes=0, model=None, version=1):
    """`inputs` are a type and the shape of a record each, by name; `answer` is the type of the first output."""
    folder = FOLDER / group
    folder.mkdir(parents=True, exist_ok=True)
    model = model or onnx.load(GENERATED / name / f"{version}/model.onnx")
    model.ir_version = min(model.ir_version, 10)
    # The same file again would be no version of its own.
    model.model_version = version
    name = f"{name}@{version}"
    onnx.save(model, folder / f"{name}.onnx")
    records = {input: values(dtype, (RECORDS, *shape)) for input, (dtype, shape) in inputs.items()}
    np.savez(folder / f"{name}.npz", **records)
    is_float = answer != TEXT and np.dtype(answer).kind == "f"
    arguments = f"--no-labels --metric {'mae' if is_float else 'exact'}"
    if classes:
        labels = folder / f"{name}.labels"
        labels.write_text("".join(f"label{at}\n" for at in range(classes)))
        arguments += f" --classes {labels}"
    (folder / f"{name}.args").write_text(arguments)


def generate(make, *arguments, **options):
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        make(str(GENERATED), *arguments, **options)


def of(nodes, inputs, outputs, constants=()):
    def info(tensors):
        return [helper.make_tensor_value_info(*tensor) for tensor in tensors]

    graph = helper.make_graph(nodes, "qa", info(inputs), info(outputs), list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_operatorsetid("", OPSET)])


def both(batch):
    return "onnx" if batch else "onnx_nobatch"


def infer():
    """Sums and differences of two inputs, of fixed shapes; `simple`, too. Versions after the first swap the two."""
    texts = [(TEXT, TEXT, TEXT), (TEXT, INT, INT), (TEXT, INT, TEXT), (TEXT, TEXT, INT)]
    texts += [(INT, TEXT, TEXT), (INT, INT, TEXT), (INT, TEXT, INT)]
    numbers = [(kind,) * 3 for kind in (BYTE, SHORT, INT, LONG, HALF, FLOAT)]
    numbers += [(HALF, FLOAT, FLOAT), (BYTE, INT, INT), (INT, BYTE, BYTE), (INT, BYTE, SHORT)]
    numbers += [(INT, FLOAT, FLOAT), (FLOAT, INT, INT), (INT, HALF, SHORT)]
    # The latest one, the latest two, all, and the first and the third.
    gone = {(BYTE,) * 3: [1, 2], (SHORT,) * 3: [1], (INT,) * 3: [], (FLOAT,) * 3: [2]}
    for kinds in numbers + texts:
        for batch in (8, 0):
            shape = (16,)
            name = test_util.get_model_name(both(batch), *kinds)
            inputs = {"INPUT0": (kinds[0], shape), "INPUT1": (kinds[0], shape)}
            for version in (1, 2, 3) if kinds in gone else (1,):
                shapes = (shape, shape, shape)
                generate(sums.create_onnx_modelfile, batch, version, *shapes, *kinds, swap=version > 1)
                classes = 0 if kinds[1] is TEXT else 16
                put("infer", name, inputs, kinds[1], classes, version=version)
            if kinds in gone:
                (FOLDER / "infer" / f"{name}.gone").write_text(" ".join(map(str, gone[kinds])))
    tensors = [(name, TensorProto.INT32, ["batch", 16]) for name in ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1")]
    nodes = [helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"])]
    nodes += [helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"])]
    inputs = {"INPUT0": (INT, (16,)), "INPUT1": (INT, (16,))}
    put("infer", "simple", inputs, INT, model=of(nodes, tensors[:2], tensors[2:]))


def zero():
    """Identities of what may have no elements."""
    for kind, shape, count in [
        (bool, [-1], 1), (FLOAT, [-1], 1), (FLOAT, [-1], 3), (HALF, [-1, -1], 1), (HALF, [-1, -1], 3),
        (TEXT, [-1], 1), (TEXT, [-1, -1], 3),
    ]:
        for batch in (8, 0):
            generate(identities.create_onnx_modelfile, 1, count, batch, kind, shape)
            name = test_util.get_zero_model_name(both(batch), count, kind)
            inputs = {f"INPUT{at}": (kind, (4,) * len(shape)) for at in range(count)}
            put("zero", name, inputs, kind)


def variable():
    """Sums and differences of any length."""
    for kinds, shape, record, classes in [
        ((FLOAT, FLOAT, FLOAT), (-1,), (16,), 16), ((FLOAT, INT, INT), (-1, -1), (2, 8), 16),
        ((FLOAT, LONG, LONG), (8, -1), (8, 4), 32), ((FLOAT, INT, LONG), (-1, 8, -1), (2, 8, 2), 32),
        ((FLOAT, FLOAT, INT), (-1,), (16,), 16), ((INT, INT, INT), (-1, -1), (2, 8), 16),
        ((INT, INT, FLOAT), (-1, 8, -1), (2, 8, 2), 32), ((TEXT, TEXT, TEXT), (-1,), (16,), 16),
        ((TEXT, INT, INT), (-1, -1), (2, 8), 16), ((TEXT, TEXT, INT), (8, -1), (8, 4), 32),
        ((TEXT, INT, TEXT), (-1, 8, -1), (2, 8, 2), 32),
    ]:
        generate(sums.create_onnx_modelfile, 0, 1, shape, shape, shape, *kinds)
        name = test_util.get_model_name(both(0), *kinds)
        inputs = {"INPUT0": (kinds[0], record), "INPUT1": (kinds[0], record)}
        put("variable", name, inputs, kinds[1], 0 if kinds[1] is TEXT else classes)


def reshape():
    """Identities in another shape, which a configuration of Triton has and here the graph."""
    for kind, onnx_type, inputs, outputs, record, without in [
        (FLOAT, TensorProto.FLOAT, [[1]], [[1]], [[1]], False),
        (FLOAT, TensorProto.FLOAT, [[1], [8]], [[1], [8]], [[1], [8]], False),
        (FLOAT, TensorProto.FLOAT, [[4, 4], [2], [2, 2, 3]], [[4, 4], [2], [2, 2, 3]], [[4, 4], [2], [2, 2, 3]], True),
        (FLOAT, TensorProto.FLOAT, [[4, 4], [2], [2, 2, 3], [1]], [[16], [1, 2], [3, 2, 2], [1]],
         [[4, 4], [2], [2, 2, 3], [1]], True),
        (INT, TensorProto.INT32, [[2, 4, -1, 6]], [[2, 4, -1, 6]], [[2, 4, 5, 6]], True),
        (INT, TensorProto.INT32, [[-1, 1], [2]], [[1, -1], [1, 2]], [[4, 1], [2]], True),
        (INT, TensorProto.INT32, [[1, -1, 1], [-1], [2, 2, 3]], [[1, -1, 1], [-1], [2, 2, 3]],
         [[1, 4, 1], [8], [2, 2, 3]], True),
        (TEXT, TensorProto.STRING, [[1]], [[1]], [[1]], False),
    ]:
        for batch in (True, False) if without else (True,):
            model = reshaped(onnx_type, zip(inputs, outputs), ["batch"] if batch else [])
            name = test_util.get_zero_model_name(both(batch), len(inputs), kind)
            records = {f"INPUT{at}": (kind, shape) for at, shape in enumerate(record)}
            put("reshape", name, records, kind, model=model)


def reshaped(onnx_type, pairs, batch):
    nodes, constants, inputs, outputs = [], [], [], []
    for at, (before, after) in enumerate(pairs):
        def shape(sizes, side):
            return batch + [f"{side}{at}_{axis}" if size == -1 else size for axis, size in enumerate(sizes)]

        names = [f"INPUT{at}"]
        inputs.append((names[0], onnx_type, shape(before, "in")))
        outputs.append((f"OUTPUT{at}", onnx_type, shape(after, "in" if before == after else "out")))
        if before != after:
            # At most one size is left open; that of the batch is copied.
            sizes = [0] * len(batch) + after
            constants.append(helper.make_tensor(f"shape{at}", TensorProto.INT64, [len(sizes)], sizes))
            names.append(f"shape{at}")
        operator = "Identity" if before == after else "Reshape"
        nodes.append(helper.make_node(operator, names, [f"OUTPUT{at}"]))
    return of(nodes, inputs, outputs, constants)


infer()
zero()
variable()
reshape()
