"""Turns the training stream into batches: dialogues in Gemma's turn format, several to a row, never cut.

Batch n depends on the seed and n alone, so that a run can be repeated with any number of workers.
"""

import os
from multiprocessing import get_context
from pathlib import Path
from queue import Empty

import numpy as np
from tokenizers import Tokenizer

from dialogues import BATCH_DIALOGUES, training_stream

TOKENIZER = Path(__file__).with_name("model") / "tokenizer.json"
BOS = 2
ASKED_WEIGHT = 0.1  # of a token that the visitor typed, against 1 for one of the reply
OPEN_ROWS = 8  # rows that are still being filled


def turn_texts(question, reply):
    """(what the template writes before the reply, the reply and its end)."""
    return f"<start_of_turn>user\n{question.strip()}<end_of_turn>\n<start_of_turn>model\n", f"{reply}<end_of_turn>"


def encode(tokenizer, turns, limit):
    """(ids, weights) of a dialogue of [(question, reply), ...]: as many turns as fit `limit`, at least none."""
    ids, weights = [BOS], [0.0]
    for question, reply in turns:
        asked, said = (
            part.ids for part in tokenizer.encode_batch(turn_texts(question, reply), add_special_tokens=False)
        )
        newline = tokenizer.token_to_id("\n")
        if len(ids) + len(asked) + len(said) + 1 > limit:
            break
        ids += asked + said + [newline]
        weights += [ASKED_WEIGHT] * len(asked) + [1.0] * len(said) + [ASKED_WEIGHT]
    return ids, weights


def batch(tokenizer, seed, number, rows, length):
    """ids, documents, targets [rows, length] and the targets' weights, as numpy arrays."""
    ids = np.zeros((rows, length), np.int64)
    weights = np.zeros((rows, length), np.float32)
    documents = np.full((rows, length), -1, np.int32)
    fill, used, started = [0] * rows, 0, min(OPEN_ROWS, rows)
    for used, turns in enumerate(training_stream(seed, number)):
        if used == BATCH_DIALOGUES:
            break
        tokens, weight = encode(tokenizer, [(turn.question, turn.reply) for turn in turns], length)
        size = len(tokens)
        fits = [row for row in range(started) if fill[row] + size <= length]
        if not fits and started < rows:
            fits, started = [started], started + 1
        if not fits:
            if min(fill) + 40 > length or used > rows * 8:
                break
            continue  # too long for what is left
        row = max(fits, key=fill.__getitem__)
        span = slice(fill[row], fill[row] + size)
        ids[row, span], weights[row, span], documents[row, span] = tokens, weight, used
        fill[row] += size
    targets, due = np.roll(ids, -1, 1), np.roll(weights, -1, 1)
    due[:, -1] = 0
    due[:, :-1] *= documents[:, :-1] == documents[:, 1:]
    return ids, documents, targets, due


def work(queue, seed, numbers, rows, length):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    for number in numbers:
        queue.put(batch(tokenizer, seed, number, rows, length))


def received(queue, process):
    """The next batch of a worker. One that has died ends the training: it would go on with fewer batches a second."""
    while True:
        try:
            return queue.get(timeout=1)
        except Empty:
            if not process.is_alive():
                raise SystemExit("train: a process that makes dialogues has ended; what it said stands above") from None


def stream(seed, steps, rows, length, workers):
    """Batches 0 to steps - 1, in order, made by `workers` processes."""
    context = get_context("fork")
    queues, processes = [context.Queue(4) for _ in range(workers)], []
    for worker, queue in enumerate(queues):
        numbers = range(worker, steps, workers)
        processes.append(context.Process(target=work, args=(queue, seed, numbers, rows, length), daemon=True))
        processes[-1].start()
    return (received(queues[number % workers], processes[number % workers]) for number in range(steps))
