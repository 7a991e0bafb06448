#!/usr/bin/env python3
"""Trains the demo model; writes model/ (INT8), model.bf16.xz beside it, and prints both figures. Or its draft model, draft/.

    tools/demo-model/train.py --start tools/demo-model/model.bf16.xz --seconds 270    goes on from earlier weights
    tools/demo-model/train.py --part 1/2 ... and --part 2/2 ...                              a run in two parts
    tools/demo-model/train.py --draft --steps 9000 --seconds 115                                the draft model
    tools/demo-model/train.py --steps 20 --rows 2 --no-report --out /tmp/trial        a trial without a GPU

Needs torch, tokenizers, safetensors and numpy. The dialogues are generated while training, each seen once. Matrices are
trained by Muon (orthogonalised momentum), the embedding and the norms by Adam; float32 master weights, BF16 arithmetic; the
last tenth of the run sees the weights through INT8. The run ends after its steps or its seconds, whichever come first, and
its learning rate falls to zero by then. A run may be cut into parts: each starts from the archive of the part before, takes
the next seed, and follows its share of the one learning rate. Batch n depends on the seed alone; two runs differ by the order in which a GPU adds
and by the steps that fit into the seconds, so the same command gives equally good weights, not the same bytes.

README.md records the committed model's run.
"""

import argparse
import math
import re
import time
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors.torch import load as parse
from safetensors.torch import save
from tokenizers import Tokenizer

import quality
from archive import pack, unpack
from batches import TOKENIZER, stream
from model import DRAFT, MATRICES, Gemma3, Shape, layer, load, save_config, save_int8, tensors, through_bf16, through_int8


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


def rate_at(step, steps, done):
    """Warm-up, then full, then straight down over the last 60 %; `done` is the share of the run that is over.

    `step` and `steps` are those of the part: each part warms up, as its optimiser starts without memory.
    """
    return min((step + 1) / (0.03 * steps), 1.0, (1 - done) / 0.6)


class Part(NamedTuple):
    """Which part of the run this is, counted from 1, and of how many."""

    number: int = 1
    count: int = 1

    def of_run(self, done):
        """The share of the whole run that is over when `done` of this part is."""
        return (self.number - 1 + done) / self.count


def part(text):
    match = re.fullmatch(r"([1-9])/([1-9])", text)
    if not match or match[1] > match[2]:
        raise argparse.ArgumentTypeError(f"{text} is no part; the first of two is 1/2")
    return Part(int(match[1]), int(match[2]))


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


def fit(model, options, device, started):
    """Trains until the steps or the seconds since `started` are used up."""
    seed = options.seed + options.part.number - 1
    batches = stream(seed, options.steps, options.rows, options.length, options.workers)
    trainer = Trainer(model.to(device), options, device)
    for step, arrays in enumerate(batches):
        passed = time.time() - started
        done = max(step / options.steps, passed / options.seconds)
        if done >= 1:
            break
        of_run = options.part.of_run(done)
        if of_run >= 1 - options.int8_share and not trainer.quantised:
            trainer.quantised, trainer.graph = True, None
        rate = rate_at(step, options.steps, of_run)
        trainer.step(arrays, rate)
        if step % options.log == 0:
            loss = trainer.loss.item()
            share = f"{100 * of_run:.0f} % done"
            print(f"step {step} loss {loss:.4f} at {passed:.0f} s, {share}, rate {rate:.3f}", flush=True)
            if not math.isfinite(loss):
                raise SystemExit("train: the loss is not finite")
    print(f"{step + (done < 1)} steps, loss {trainer.loss.item():.4f}", flush=True)


def write_archive(bf16, path):
    path.write_bytes(pack(save(bf16, metadata={"format": "pt"})))


def main():
    started = time.time()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draft", action="store_true", help="train the draft model, and write it without a report")
    parser.add_argument("--start", type=Path, help="BF16 archive to start from (default: random weights)")
    parser.add_argument(
        "--part", type=part, default=Part(), metavar="K/N", help="K-th of a run's N parts; steps and seconds are its own"
    )
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="from the start of the program to the last step"
    )
    parser.add_argument("--rows", type=int, default=64, help="rows of a batch")
    parser.add_argument("--length", type=int, default=512, help="positions of a row")
    parser.add_argument("--layers", type=int, default=Shape.layers)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--muon", type=float, default=0.02, help="peak learning rate of the matrices")
    parser.add_argument("--adam", type=float, default=0.003, help="peak learning rate of the rest")
    parser.add_argument("--int8-share", type=float, default=0.1, help="share of the steps that see INT8 weights")
    parser.add_argument("--workers", type=int, default=14, help="processes that generate dialogues")
    parser.add_argument("--log", type=int, default=100, help="steps between two lines")
    parser.add_argument("--out", type=Path, help="directory to write (default: model, or draft, beside this program)")
    parser.add_argument("--no-graph", action="store_true", help="do not record the step as a CUDA graph")
    parser.add_argument("--no-report", action="store_true", help="leave the figures out (a trial without a GPU)")
    options = parser.parse_args()
    if options.part.number > 1 and not options.start:
        parser.error("--part 2/2 goes on from --start, the archive of the part before")
    if options.draft and (options.start or options.layers != Shape.layers):
        parser.error("--draft starts from nothing, and has layers of its own")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(options.seed)
    shape = DRAFT if options.draft else Shape(layers=options.layers)
    out = options.out or TOKENIZER.parent.with_name("draft" if options.draft else "model")
    model = Gemma3(shape)
    print(f"{sum(weight.numel() for weight in model.parameters()) / 1e6:.2f} million weights, {device}", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    if options.start:
        load(model, parse(unpack(options.start.read_bytes())))
    fit(model, options, device, started)
    bf16 = tensors(model)
    save_config(shape, out)
    save_int8(bf16, out / "model.safetensors")
    print(f"trained and written after {time.time() - started:.0f} s", flush=True)
    if options.draft:
        return
    archive = Thread(target=write_archive, args=(bf16, out.parent / "model.bf16.xz"))
    archive.start()  # beside the report: it takes as long
    if not options.no_report:
        model.layer = layer
        load(model, bf16)
        tokenizer = Tokenizer.from_file(str(TOKENIZER))
        quality.report(model, tokenizer, device, transform=through_int8)
        quality.drift(model, tokenizer, device, {"INT8": through_int8, "BF16": through_bf16})
    archive.join()
    print(f"all done after {time.time() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
