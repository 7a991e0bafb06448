#!/usr/bin/env python3
"""Trains the demo model; writes model/ (INT8), model.bf16.xz beside it, and prints both figures.

    tools/demo-model/train.py                       the committed model's run, on one GPU
    tools/demo-model/train.py --steps 20 --rows 2 --no-report --out /tmp/trial    a trial without one

Needs torch, tokenizers, safetensors and numpy. The dialogues are generated while training, each seen once. Matrices are
trained by Muon (orthogonalised momentum), the embedding and the norms by Adam; float32 master weights, BF16 arithmetic; the
last tenth of the steps sees the weights through INT8. The data depend on the seed alone; two runs differ by the order in
which a GPU adds, so the same command gives equally good weights, not the same bytes.

README.md records the committed model's run.
"""

import argparse
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save
from tokenizers import Tokenizer

import quality
from archive import pack
from batches import TOKENIZER, stream
from model import MATRICES, Gemma3, Shape, layer, load, save_config, save_int8, tensors, through_bf16, through_int8


def orthogonal(update):
    """The nearest semi-orthogonal matrices to [L, r, c], roughly, by five Newton-Schulz steps (Jordan et al., 2024)."""
    x = update.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return (x.mT if tall else x).to(update.dtype)


class Optimizer:
    """Muon for the stacked matrices, Adam for the rest. `rate` is a tensor, so that a recorded step can follow it."""

    def __init__(self, model, device, muon=0.02, adam=0.003, decay=0.02, momentum=0.95):
        self.rate = torch.ones((), device=device)
        self.muon, self.adam, self.decay, self.momentum = muon, adam, decay, momentum
        named = dict(model.named_parameters())
        self.matrices = [named[name] for name in MATRICES]
        self.others = [weight for name, weight in named.items() if name not in MATRICES]
        self.traces = [torch.zeros_like(weight) for weight in self.matrices]
        self.first = [torch.zeros_like(weight) for weight in self.others]
        self.second = [torch.zeros_like(weight) for weight in self.others]
        self.count = torch.zeros((), device=device)

    @torch.no_grad()
    def step(self):
        for weight, trace in zip(self.matrices, self.traces):
            trace.lerp_(weight.grad, 1 - self.momentum)
            update = orthogonal(weight.grad.lerp(trace, self.momentum))
            rows, columns = weight.shape[-2:]
            weight.mul_(1 - self.rate * self.muon * self.decay)
            weight.sub_(update * (self.rate * self.muon * max(1, rows / columns) ** 0.5))
        self.count += 1
        for weight, first, second in zip(self.others, self.first, self.second):
            first.lerp_(weight.grad, 0.1)
            second.lerp_(weight.grad.square(), 0.02)
            mean = first / (1 - 0.9**self.count)
            spread = (second / (1 - 0.98**self.count)).sqrt() + 1e-10
            weight.sub_(mean / spread * (self.rate * self.adam))


def rate_at(step, steps):
    """Warm-up, then full, then straight down over the last 60 %."""
    return min((step + 1) / (0.03 * steps), 1.0, (steps - step) / (0.6 * steps))


def weighted_loss(logits, targets, due):
    loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
    return (loss * due.flatten()).sum() / due.sum()


class Trainer:
    """One training step on static buffers: recorded once as a CUDA graph, then replayed."""

    def __init__(self, model, options, device):
        self.model, self.device, self.quantised = model, device, False
        self.optimizer = Optimizer(model, device, muon=options.muon, adam=options.adam)
        self.dtype = torch.bfloat16 if device == "cuda" else torch.float32
        size = (options.rows, options.length)
        kinds = (torch.int64, torch.int32, torch.int64, torch.float32)
        self.buffers = [torch.zeros(size, dtype=kind, device=device) for kind in kinds]
        self.loss = torch.zeros((), device=device)
        self.graph, self.recorded = None, device == "cuda" and not options.no_graph
        self.weighted_loss = weighted_loss
        if device == "cuda":
            model.layer = torch.compile(layer, dynamic=False)
            self.weighted_loss = torch.compile(weighted_loss, dynamic=False)

    def compute(self):
        ids, documents, targets, due = self.buffers
        for weight in self.model.parameters():
            weight.grad = None
        transform = through_int8 if self.quantised else None
        logits = self.model(ids, documents, dtype=self.dtype, transform=transform)
        loss = self.weighted_loss(logits, targets, due)
        loss.backward()
        self.optimizer.step()
        self.loss.copy_(loss.detach())

    def record(self):
        """Runs the first steps on the side, then records one."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.compute()
        torch.cuda.current_stream().wait_stream(side)
        for weight in self.model.parameters():
            weight.grad = None
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.compute()

    def step(self, arrays, rate):
        for buffer, array in zip(self.buffers, arrays):
            buffer.copy_(torch.from_numpy(array))
        self.optimizer.rate.fill_(rate)
        if not self.recorded:
            self.compute()
        else:
            if self.graph is None:
                self.record()
            self.graph.replay()


def fit(model, options, device):
    batches = stream(options.seed, options.steps, options.rows, options.length, options.workers)
    trainer = Trainer(model.to(device), options, device)
    started, switch = time.time(), math.ceil(options.steps * (1 - options.int8_share))
    for step, arrays in enumerate(batches):
        if step == switch:
            trainer.quantised, trainer.graph = True, None
        trainer.step(arrays, rate_at(step, options.steps))
        if step % options.log == 0 or step == options.steps - 1:
            loss, passed = trainer.loss.item(), time.time() - started
            rate = (step + 1) * options.rows * options.length / passed
            print(f"step {step} loss {loss:.4f} at {passed:.0f} s, {rate / 1e3:.0f} thousand positions/s", flush=True)
            if not math.isfinite(loss):
                raise SystemExit("train: the loss is not finite")
        if options.save and step % options.save == options.save - 1:
            save_int8(tensors(model), options.out / "model.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--rows", type=int, default=64, help="rows of a batch")
    parser.add_argument("--length", type=int, default=512, help="positions of a row")
    parser.add_argument("--layers", type=int, default=Shape.layers)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--muon", type=float, default=0.02, help="peak learning rate of the matrices")
    parser.add_argument("--adam", type=float, default=0.003, help="peak learning rate of the rest")
    parser.add_argument("--int8-share", type=float, default=0.1, help="share of the steps that see INT8 weights")
    parser.add_argument("--workers", type=int, default=14, help="processes that generate dialogues")
    parser.add_argument("--log", type=int, default=100, help="steps between two lines")
    parser.add_argument("--save", type=int, default=0, help="steps between two INT8 checkpoints")
    parser.add_argument("--out", type=Path, default=TOKENIZER.parent)
    parser.add_argument("--no-graph", action="store_true", help="do not record the step as a CUDA graph")
    parser.add_argument("--no-report", action="store_true", help="leave the figures out (a trial without a GPU)")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(options.seed)
    shape = Shape(layers=options.layers)
    model = Gemma3(shape)
    print(f"{sum(weight.numel() for weight in model.parameters()) / 1e6:.2f} million weights, {device}", flush=True)
    started = time.time()
    options.out.mkdir(parents=True, exist_ok=True)
    fit(model, options, device)
    bf16 = tensors(model)
    save_config(shape, options.out)
    (options.out.parent / "model.bf16.xz").write_bytes(pack(save(bf16, metadata={"format": "pt"})))
    save_int8(bf16, options.out / "model.safetensors")
    print(f"trained and written after {time.time() - started:.0f} s", flush=True)
    if options.no_report:
        return
    model.layer = layer
    load(model, bf16)
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    _, exact = quality.report(model, tokenizer, device, "BF16", 0, transform=through_bf16)
    _, int8 = quality.report(model, tokenizer, device, "INT8", 20, transform=through_int8)
    quality.report(model, tokenizer, device, "INT8, BF16 activations", 0, transform=through_int8, dtype=torch.bfloat16)
    print(f"perplexity INT8 / BF16: {int8 / exact:.5f}")


if __name__ == "__main__":
    main()
