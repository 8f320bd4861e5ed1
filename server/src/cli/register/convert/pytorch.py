"""Models of PyTorch: archives of TorchScript, exported programs and pickled modules."""

import inspect
import warnings

from . import compare, records, say

# Rows of the sample that a model is exported with: `torch.export` takes sizes of 0 and 1 for constants.
LEAST_ROWS = 2
MOST_ROWS = 8
# Bytes from which weights lie beside the model: a file of ONNX has at most 2 GiB.
LARGE = 1_800_000_000
WEIGHTS_ALONE = (
    "it holds weights alone, without the model that they belong to: in the program that has the model's class, load them into it "
    "and save an exported program, `torch.export.save(torch.export.export(model, (sample,)), \"model.pt2\")`"
)


def convert(what):
    exporter = () if what["kind"] == "torch_script" else ("onnxscript",)
    say.require("torch", "onnx", besides=exporter)
    torch = say.need("torch")
    model = load(torch, what)
    if what["kind"] == "exported_program":
        return finish(Program(torch, model), what)
    return convert_module(model, what)


def convert_module(module, what):
    say.require("torch", "onnx", besides=("onnxscript",))
    torch = say.need("torch")
    if isinstance(module, dict):
        say.refuse(WEIGHTS_ALONE)
    if not isinstance(module, torch.nn.Module):
        kind = f"{type(module).__module__}.{type(module).__name__}"
        say.refuse(f"it holds a `{kind}`, which is no module of PyTorch")
    script = isinstance(module, torch.jit.ScriptModule)
    return finish((Script if script else Module)(torch, module.eval()), what)


def load(torch, what):
    kind, path = what["kind"], str(what["model"])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if kind == "torch_script":
                return torch.jit.load(path, map_location="cpu")
            if kind == "exported_program":
                return torch.export.load(path)
            return torch.load(path, map_location="cpu", weights_only=False)
    except ModuleNotFoundError as error:
        say.refuse(
            f"its class is one of the module `{error.name}`, which this Python has not: install the package that has it, or name "
            "the folder of its file in PYTHONPATH"
        )
    except AttributeError as error:
        say.refuse(
            f"its class is not where it was when it was saved ({say.first_line(error)}): a class of the program that is run is found "
            "by that program alone; move it into a module that can be imported, or save an exported program with `torch.export.save`"
        )


class Module:
    """A module whose Python code is there."""

    how = "torch.onnx"

    def __init__(self, torch, module):
        self.torch, self.module = torch, module
        config = getattr(module, "config", None)
        if hasattr(config, "use_cache"):
            # What a language model keeps for its next token is no answer.
            config.use_cache = False
        self.name = f"a {type(module).__name__} of PyTorch"

    def parameters(self):
        """Names of what it takes, and of what it needs."""
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.KEYWORD_ONLY)
        found = [it for it in inspect.signature(self.module.forward).parameters.values() if it.kind in kinds]
        return [it.name for it in found], [it.name for it in found if it.default is inspect.Parameter.empty]

    def float_type(self):
        kinds = [it.dtype for it in self.module.parameters() if it.dtype.is_floating_point]
        return kinds[0] if kinds else self.torch.float32

    def bytes(self):
        return sum(it.numel() * it.element_size() for it in self.module.parameters())

    def __call__(self, arguments):
        with self.torch.no_grad():
            return self.module(*arguments.positional(), **arguments.named())

    def exports(self, arguments, target, names):
        """Ways to write it, the best first; each is tried until one works."""
        dims = Dims(self.torch)
        common = {
            "input_names": names[0],
            "output_names": names[1],
            "kwargs": arguments.named() or None,
            "external_data": self.bytes() > LARGE,
        }
        if say.has("onnxscript"):
            for kind in (dims.named, dims.automatic):
                yield "torch.export", lambda kind=kind: self.torch.onnx.export(
                    self.module, arguments.positional(), str(target), dynamo=True, dynamic_shapes=arguments.shapes(kind), **common
                )
        yield "the TorchScript exporter", lambda: self.traced(arguments, target, common)

    def traced(self, arguments, target, common):
        self.torch.onnx.export(
            self.module, arguments.positional(), str(target), dynamo=False, dynamic_axes=arguments.axes(common["output_names"]), **common
        )


class Script(Module):
    """An archive of TorchScript, which only its own exporter reads."""

    def __init__(self, torch, module):
        super().__init__(torch, module)
        self.name = f"a {getattr(module, 'original_name', '') or 'model'} of TorchScript"

    def parameters(self):
        found = self.module.forward.schema.arguments[1:]
        return [it.name for it in found], [it.name for it in found if not it.has_default_value()]

    def exports(self, arguments, target, names):
        common = {"input_names": names[0], "output_names": names[1], "kwargs": arguments.named() or None}
        yield "the TorchScript exporter", lambda: self.traced(arguments, target, common)


class Program(Module):
    """An exported program, which says itself which of its dimensions are open."""

    def __init__(self, torch, program):
        self.torch, self.program, self.module = torch, program, program.module()
        self.name = "an exported program of PyTorch"

    def parameters(self):
        names = [str(name) for name in self.program.graph_signature.user_inputs]
        return names, names

    def bytes(self):
        return sum(it.numel() * it.element_size() for it in self.program.state_dict.values())

    def float_type(self):
        kinds = [it.dtype for it in self.program.state_dict.values() if it.dtype.is_floating_point]
        return kinds[0] if kinds else self.torch.float32

    def __call__(self, arguments):
        with self.torch.no_grad():
            return self.module(*self.called(arguments)[0], **self.called(arguments)[1])

    def called(self, arguments):
        """Its inputs in the places that it was exported with."""
        from torch.utils import _pytree

        return _pytree.tree_unflatten(arguments.tensors, self.program.call_spec.in_spec)

    def exports(self, arguments, target, names):
        say.need("onnxscript")
        large = self.bytes() > LARGE
        yield "torch.export", lambda: self.torch.onnx.export(
            self.program, (), str(target), dynamo=True, input_names=names[0], output_names=names[1], external_data=large
        )


class Dims:
    """Open dimensions, as `torch.export` has them."""

    def __init__(self, torch):
        self.dim = getattr(torch.export, "Dim", None)

    def named(self, name):
        return self.dim(name)

    def automatic(self, _):
        return self.dim.AUTO


class Arguments:
    """What a model is called with: `parameters` are its own names of what the validation set calls otherwise."""

    def __init__(self, parameters, inputs, tensors, order):
        self.parameters, self.inputs, self.tensors = parameters, inputs, tensors
        # In its own order, whatever comes first can be given without names.
        self.is_positional = list(parameters) == list(order[: len(parameters)])

    def positional(self):
        return tuple(self.tensors) if self.is_positional else ()

    def named(self):
        return {} if self.is_positional else dict(zip(self.parameters, self.tensors))

    def open(self):
        """For each input its open dimensions by name: those that differ together have one name."""
        known, found = {}, []
        for given in self.inputs:
            axes = {0: "batch"}
            for axis in given.open_axes():
                name = known.setdefault(given.lengths(axis), f"{given.name}_{axis}".replace(".", "_"))
                axes[axis + 1] = name
            found.append(axes)
        return found

    def shapes(self, dim):
        dims = {}

        def named(name):
            return dims.setdefault(name, dim(name))

        each = [{axis: named(name) for axis, name in axes.items()} for axes in self.open()]
        return tuple(each) if self.is_positional else dict(zip(self.parameters, each))

    def axes(self, outputs):
        """The same for the TorchScript exporter; it finds the rest of the outputs' open dimensions."""
        each = {given.name: axes for given, axes in zip(self.inputs, self.open())}
        return each | {name: {0: "batch"} for name in outputs}

    def replaced(self, tensors):
        copy = Arguments.__new__(Arguments)
        copy.__dict__.update(self.__dict__, tensors=tensors)
        return copy


def matched(model, found):
    """Which parameter each input of the validation set is for, in the model's order."""
    parameters, required = model.parameters()
    if isinstance(found, records.Table):
        found = found.inputs(required if len(required) == 1 else parameters)
    if not found:
        say.refuse("the validation set has none of its inputs, " + ", ".join(f"`{name}`" for name in required))
    by_name = {given.name: given for given in found}
    if set(by_name) <= set(parameters):
        return parameters, [(name, by_name[name]) for name in parameters if name in by_name]
    if len(found) == 1 and len(required) <= 1 and parameters:
        return parameters, [(parameters[0], found[0])]
    shown = [", ".join(f"`{name}`" for name in names) for names in (parameters, by_name)]
    return say.refuse(f"its inputs are {shown[0]}, and the validation set has {shown[1]}: name its arrays as the model does")


def tensor(torch, arrays, float_type):
    import numpy

    found = torch.from_numpy(numpy.ascontiguousarray(numpy.stack(arrays)))
    # NumPy makes double precision of everything.
    return found.to(float_type) if found.dtype == torch.float64 else found


def kept(_, tensor):
    return tensor


def as_floats(model, tensor):
    return tensor if tensor.dtype.is_floating_point else tensor.to(model.float_type())


def as_longs(model, tensor):
    return tensor if tensor.dtype.is_floating_point else tensor.to(model.torch.int64)


class Sample:
    """Records of the validation set as a model's arguments."""

    def __init__(self, model, found):
        self.model = model
        self.order, pairs = matched(model, found)
        self.parameters, self.inputs = [it[0] for it in pairs], [it[1] for it in pairs]
        self.change = kept

    def arguments(self, rows):
        kind = self.model.float_type()
        tensors = [tensor(self.model.torch, [it.of(row) for row in rows], kind) for it in self.inputs]
        tensors = [self.change(self.model, it) for it in tensors]
        return Arguments(self.parameters, self.inputs, tensors, self.order)

    def shape(self, row):
        return tuple(it.of(row).shape for it in self.inputs)

    def count(self):
        return min(len(it.arrays) for it in self.inputs)

    def rows(self):
        """The longest record and those of its shape, at least two."""
        sizes = [sum(sum(shape) for shape in self.shape(row)) for row in range(self.count())]
        longest = self.shape(sizes.index(max(sizes)))
        rows = [row for row in range(self.count()) if self.shape(row) == longest][:MOST_ROWS]
        return rows * LEAST_ROWS if len(rows) < LEAST_ROWS else rows

    def others(self):
        """A record alone, and some of other shapes."""
        by_shape = {}
        for row in range(self.count()):
            by_shape.setdefault(self.shape(row), row)
        return [[row] for row in list(by_shape.values())[:MOST_ROWS]]

    def fitted(self):
        """Arguments that it takes: whole numbers are made what it needs, where it does not take them as they are."""
        errors = []
        for change in (kept, as_floats, as_longs):
            self.change = change
            arguments = self.arguments(self.rows())
            try:
                return arguments, self.model(arguments)
            except Exception as error:
                errors.append(error)
        shapes = ", ".join(f"`{it.name}` {list(it.of(0).shape)}" for it in self.inputs)
        return say.refuse(
            f"PyTorch does not run it with records of the validation set, {shapes} and a first dimension for the batch: "
            f"{say.first_line(errors[0])}"
        )


def tensors_of(torch, answer):
    """The tensors of an answer by name, in its order."""
    from torch.utils import _pytree

    if isinstance(answer, torch.Tensor):
        return {"output": answer}
    if hasattr(answer, "items"):
        pairs = [(str(name), value) for name, value in answer.items()]
    elif hasattr(answer, "_fields"):
        pairs = list(zip(answer._fields, answer))
    elif isinstance(answer, (tuple, list)):
        pairs = [(f"output_{place}", value) for place, value in enumerate(answer)]
    else:
        pairs = [("output", answer)]
    found = {}
    for name, value in pairs:
        leaves = [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        for place, leaf in enumerate(leaves):
            found[name if len(leaves) == 1 else f"{name}_{place}"] = leaf
    return found


def sample_set(what):
    if what.get("sample"):
        numpy = say.need("numpy")
        random = numpy.random.default_rng(1)
        shape = what["sample"]
        return [records.Input("", [random.random(shape, dtype="float32") for _ in range(LEAST_ROWS)])]
    found = records.read(what["validation"])
    if found is None:
        say.refuse("its inputs are taken from the validation set: name one that is an `.npz` archive, JSON lines or CSV")
    return found


def finish(model, what, found=None):
    """Writes it, and says how it was written and how far its answers are off."""
    say.converter("torch")
    sample = Sample(model, sample_set(what) if found is None else found)
    for given, parameter in zip(sample.inputs, sample.parameters):
        given.name = given.name or parameter
    arguments, answer = sample.fitted()
    inputs = [it.name for it in sample.inputs]
    outputs = [f"{name}_out" if name in inputs else name for name in tensors_of(model.torch, answer)]
    how = export(model, arguments, what["target"], (inputs, outputs))
    say.tell(did=f"{model.name} was written as ONNX by {how}, with {compare.signature(what['target'])}")
    check(model, sample, what["target"])


def export(model, arguments, target, names):
    """Tries each way, and returns the one that worked."""
    errors, fixed = [], None
    for how, write in model.exports(arguments, target, names):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                write()
        except ModuleNotFoundError as error:
            say.lack(error)
        except Exception as error:
            errors.append((how, error))
            continue
        if compare.is_open(target):
            return how
        fixed = how
    if fixed:
        return fixed
    if not say.has("onnxscript"):
        say.stop(missing="onnxscript")
    return say.refuse("PyTorch cannot write it as ONNX: " + "; ".join(f"{how}: {say.first_line(it)}" for how, it in errors))


def check(model, sample, target):
    """Compares its answers with PyTorch's own on records of the validation set."""
    known = compare.outputs(target)

    def own(arguments):
        found = list(tensors_of(model.torch, model(arguments)).items())
        # Where the file has fewer outputs or others in between, they are found by name.
        chosen = [it for it in found if it[0] in known] if len(found) != len(known) else found
        return [it.detach().float().cpu().numpy() for _, it in chosen]

    def pairs():
        for rows in [sample.rows(), *sample.others()]:
            arguments = sample.arguments(rows)
            given = {it.name: tensor for it, tensor in zip(sample.inputs, arguments.tensors)}
            yield set(rows), {name: it.numpy() for name, it in given.items()}, own(arguments), own(arguments)

    compare.check("PyTorch", target, pairs())
