"""ResNet-50 with PyTorch on the GPU: images per second, as JSON lines.

Times are the device's, inputs lie on the device: what `exec_throughput` of the engine measures.
Weights are random; they make no difference to the time.
"""

import json
import sys

BATCH = 16
WARM_UP = 50
BATCHES = 500


def network(torch):
    nn = torch.nn

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

    layers = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = 64
    for stage, depth in enumerate([3, 4, 6, 3]):
        width = 64 << stage
        for block in range(depth):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Bottleneck(channels, width, stride))
            channels = width * 4
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    return nn.Sequential(*layers).eval().half().cuda()


def images_per_second(torch, run):
    for _ in range(WARM_UP):
        run()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(BATCHES):
        run()
    end.record()
    torch.cuda.synchronize()
    return BATCH * BATCHES / (start.elapsed_time(end) / 1000)


def captured(torch, model, x):
    """One CUDA graph of the network, as the engine has it."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x)
    return graph.replay


def main():
    try:
        import torch
    except ImportError:
        sys.exit("PyTorch is missing: `pip install torch` into the Python named by `SEXTANT_TORCH_PYTHON`")
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(3)
    with torch.inference_mode():
        model = network(torch)
        x = torch.randn(BATCH, 3, 224, 224, device="cuda", dtype=torch.half)
        last = torch.channels_last
        ways = [
            ("eager", lambda: model, x, False),
            ("channels last", lambda: model.to(memory_format=last), x.to(memory_format=last), False),
            ("channels last, graph", lambda: model, x.to(memory_format=last), True),
        ]
        for name, prepare, inputs, graph in ways:
            model = prepare()
            run = captured(torch, model, inputs) if graph else (lambda: model(inputs))
            record = {
                "experiment": "gpu",
                "cell": f"ResNet-50 fp16 batch {BATCH}, PyTorch {torch.__version__} {name}",
                "metric": "exec_throughput",
                "value": images_per_second(torch, run),
                "unit": "images/s",
            }
            print(json.dumps(record), flush=True)


main()
