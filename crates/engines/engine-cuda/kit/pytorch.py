"""The networks of the GPU suite with PyTorch: items per second, as JSON lines.

Inputs lie on the device and times are the device's: what `exec_throughput` of the engine measures. Shapes are those of
`crates/engines/engine-cuda/src/suite/networks`; weights are random, which makes no difference to the time.
"""

import argparse
import json
import os
import sys
import time

# Results alone go to standard output, whatever else a compiler prints.
RESULTS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

try:
    import torch
except ImportError:
    sys.exit("PyTorch is missing: `pip install torch` for the `python3` on the path or the one that `SEXTANT_TORCH_PYTHON` names")

nn = torch.nn
WAYS = ("eager", "graph", "compile")
WARM_UP = 30
# Between two looks at the clock.
ROUND = 20


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        out = width * 4
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.body(x) + self.shortcut(x))


def residual(start, classes):
    layers = [
        nn.Conv2d(3, start, 7, 2, 3, bias=False),
        nn.BatchNorm2d(start),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = start
    for stage, depth in enumerate([3, 4, 6, 3]):
        width = start << stage
        for block in range(depth):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Bottleneck(channels, width, stride))
            channels = width * 4
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(*layers)


class Layer(nn.Module):
    def __init__(self, hidden, heads, inner):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.first = nn.LayerNorm(hidden, eps=1e-12)
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden)
        self.second = nn.LayerNorm(hidden, eps=1e-12)

    def forward(self, x, bias):
        rows, length, hidden = x.shape
        split = self.qkv(x).view(rows, length, 3, self.heads, hidden // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = self.first(x + self.out(seen.transpose(1, 2).reshape(rows, length, hidden)))
        return self.second(x + self.down(nn.functional.gelu(self.up(x))))


class Encoder(nn.Module):
    def __init__(self, layers, hidden, heads, inner, words, positions):
        super().__init__()
        self.words = nn.Embedding(words, hidden)
        self.positions = nn.Embedding(positions, hidden)
        self.types = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)
        self.layers = nn.ModuleList(Layer(hidden, heads, inner) for _ in range(layers))
        self.pool = nn.Linear(hidden, hidden)

    def forward(self, ids, mask, types):
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.positions(places) + self.types(types))
        least = torch.finfo(x.dtype).min
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * least
        for layer in self.layers:
            x = layer(x, bias)
        return x, torch.tanh(self.pool(x[:, 0]))


def images(options):
    start, size, classes = (4, 32, 10) if options.small else (64, 224, 1000)
    model = residual(start, classes)
    x = torch.randn(options.batch, 3, size, size, device=options.device, dtype=options.dtype)
    return "ResNet-50", "images/s", model, [x]


def text(options):
    sizes = (2, 24, 3, 48, 120, 64) if options.small else (12, 768, 12, 3072, 30522, 512)
    length = 11 if options.small else 128
    model = Encoder(*sizes)
    shape = (options.batch, length)
    ids = torch.randint(sizes[4], shape, device=options.device)
    ones = torch.ones(shape, device=options.device, dtype=torch.long)
    return "BERT-like encoder", "sequences/s", model, [ids, ones, torch.zeros_like(ones)]


def captured(model, inputs):
    """One CUDA graph of the network, as the engine has it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(*inputs)
    return graph.replay


def batches_per_second(options, run):
    on_gpu = options.device != "cpu"
    for _ in range(WARM_UP if on_gpu else 1):
        run()
    if not on_gpu:
        started = time.perf_counter()
        run()
        return 1 / (time.perf_counter() - started)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    started, batches = time.perf_counter(), 0
    start.record()
    while batches == 0 or time.perf_counter() - started < options.seconds:
        for _ in range(ROUND):
            run()
        batches += ROUND
        # Work is put into the stream faster than it is done.
        torch.cuda.current_stream().synchronize()
    end.record()
    torch.cuda.synchronize()
    return batches / (start.elapsed_time(end) / 1000)


def prepared(options, way, model, inputs):
    """What runs a batch in one of the ways."""
    if way == "graph":
        return captured(model, inputs)
    if way == "compile":
        # With CUDA graphs where there are some.
        mode = "default" if options.device == "cpu" else "reduce-overhead"
        model = torch.compile(model, mode=mode)
    return lambda: model(*inputs)


def measure(options, way, network):
    name, unit, model, inputs = network(options)
    model = model.eval().to(device=options.device, dtype=options.dtype)
    layout = ""
    if network is images and way != "eager":
        model = model.to(memory_format=torch.channels_last)
        inputs = [x.to(memory_format=torch.channels_last) for x in inputs]
        layout = "channels last, "
    with torch.inference_mode():
        rate = batches_per_second(options, prepared(options, way, model, inputs))
    precision = "fp16" if options.dtype == torch.half else "fp32"
    record(
        cell=f"{name} {precision} batch {options.batch}, PyTorch {torch.__version__} {layout}{way}",
        metric="exec_throughput",
        value=options.batch * rate,
        unit=unit,
    )


def record(**fields):
    print(json.dumps({"experiment": "gpu", "part": "pytorch", **fields}), file=RESULTS, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ways", default=",".join(WAYS), help="of " + ", ".join(WAYS))
    parser.add_argument("--device", default="cuda:0", help="cuda:N, or cpu, which has no graphs")
    parser.add_argument("--seconds", type=float, default=4, help="for each figure")
    parser.add_argument("--small", action="store_true", help="small networks")
    options = parser.parse_args()
    options.batch = 4 if options.small else 16
    options.dtype = torch.half
    if options.device == "cpu":
        options.dtype = torch.float
    elif not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    else:
        torch.cuda.set_device(options.device)
        torch.backends.cudnn.benchmark = True
    torch.manual_seed(3)
    failed = 0
    # The ways in order, so that where time runs out each network has the first ones.
    for way in options.ways.split(","):
        for network in (text, images) if way == "compile" else (images, text):
            try:
                measure(options, way, network)
            except Exception as error:
                print(f"{way}: {type(error).__name__}: {error}", file=sys.stderr)
                failed = 1
    sys.exit(failed)


main()
