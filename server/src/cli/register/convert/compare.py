"""What an ONNX file takes and answers, held against the library that it was converted from."""

from . import say

# Differences in proportion to the largest number of an answer: more than this is another model.
MOST = 0.01


def load(target):
    onnx = say.need("onnx")
    return onnx.load(str(target), load_external_data=False)


def dims(value):
    tensor = value.type.tensor_type
    return [it.dim_param or (it.dim_value if it.HasField("dim_value") else "?") for it in tensor.shape.dim]


def signature(target):
    """Inputs and outputs with their shapes, in words."""
    graph = load(target).graph
    shown = [", ".join(f"`{it.name}` [{', '.join(map(str, dims(it)))}]" for it in values) for values in (graph.input, graph.output)]
    return f"inputs {shown[0]} and outputs {shown[1]}"


def inputs(target):
    return [it.name for it in load(target).graph.input]


def kinds(target):
    """The types of the inputs by name, as NumPy calls them."""
    onnx = say.need("onnx")
    of = onnx.helper.tensor_dtype_to_np_dtype
    return {it.name: of(it.type.tensor_type.elem_type) for it in load(target).graph.input}


def rename(target, names):
    """Calls the only input as the validation set does, which has one of another name."""
    onnx = say.need("onnx")
    model = onnx.load(str(target))
    graph = model.graph
    if len(names) != 1 or len(graph.input) != 1 or graph.input[0].name == names[0]:
        return
    # Names of values are no part of the others: what has this one already keeps it.
    if any(names[0] in (*node.input, *node.output) for node in graph.node):
        return
    node = onnx.helper.make_node("Identity", [names[0]], [graph.input[0].name])
    graph.input[0].name = names[0]
    graph.node.insert(0, node)
    onnx.save(model, str(target))


def outputs(target):
    return [it.name for it in load(target).graph.output]


def is_open(target):
    """Whether the first dimension of every input and output is open."""
    graph = load(target).graph
    return all(dims(it) and not isinstance(dims(it)[0], int) for it in [*graph.input, *graph.output])


class Runner:
    """Runs an ONNX file: with ONNX Runtime where it is installed, else with the reference of the package `onnx`."""

    def __init__(self, target):
        if say.has("onnxruntime"):
            import onnxruntime

            onnxruntime.set_default_logger_severity(4)
            self.session = onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])
        else:
            from onnx.reference import ReferenceEvaluator

            self.session = ReferenceEvaluator(str(target))

    def __call__(self, inputs):
        return self.session.run(None, inputs)


def difference(numpy, ours, theirs):
    """The largest difference, and that in proportion to the largest number; text is equal or not."""
    worst, share = 0.0, 0.0
    for here, there in zip(ours, theirs):
        here, there = numpy.asarray(here), numpy.asarray(there)
        if here.shape != there.shape:
            return float("inf"), float("inf")
        if here.dtype.kind not in "biuf" or not here.size:
            continue
        here, there = here.astype("float64"), there.astype("float64")
        same = (here == there) | (numpy.isnan(here) & numpy.isnan(there))
        apart = numpy.where(same, 0.0, numpy.abs(here - there))
        largest = float(numpy.nan_to_num(apart, nan=numpy.inf).max())
        finite = numpy.abs(there[numpy.isfinite(there)])
        worst, share = max(worst, largest), max(share, largest / max(float(finite.max(initial=0.0)), 1e-6))
    return worst, share


def check(library, target, pairs):
    """Tells the largest difference between the file's answers and the library's own.

    `pairs` yields which records they are, the inputs by name, the library's answers to them, and the same once more, which tells what
    is drawn at random.
    """
    numpy = say.need("numpy")
    run, records, worst, share = Runner(target), set(), 0.0, 0.0
    for rows, inputs, theirs, again in pairs:
        if difference(numpy, theirs, again)[1] > MOST:
            return say.tell(note=f"its answers are drawn at random: they were not compared with {library}'s own")
        try:
            ours = run(inputs)
        except Exception as error:
            if not records:
                say.refuse(f"the ONNX file does not run: {say.first_line(error)}")
            shapes = ", ".join(f"`{name}` {list(array.shape)}" for name, array in inputs.items())
            return say.tell(note=f"the ONNX file does not take {shapes}, which {library} does: {say.first_line(error)}")
        apart = difference(numpy, ours, theirs)
        worst, share, records = max(worst, apart[0]), max(share, apart[1]), records | rows
    text = f"its answers differ from {library}'s own by at most {worst:.2g}, on {len(records)} records of the validation set"
    if share > MOST:
        say.refuse(f"the ONNX file is not the model: {text}")
    return say.tell(did=text)
