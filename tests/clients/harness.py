"""lm-evaluation-harness's `local-completions` on a task of three questions. Its scores are those that Kiln gives its tokens."""
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest
import urllib.request

URL = os.environ["KILN_URL"]
# Seconds for an answer, and for the harness, whose start takes half a minute on a loaded machine.
PATIENCE = 600
CONTEXTS = ["The museum opens at", "Tickets for children cost", "The café is"]
WRONG = " zebras and 17 spoons"
TASK = """\
task: kiln_tiny
dataset_path: json
dataset_kwargs: {{data_files: {{test: {questions}}}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{context}}}}"
doc_to_choice: choices
doc_to_target: answer
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""


def post(path, body):
    request = urllib.request.Request(f"{URL}{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def tokens(text):
    return post("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]


def continued(context):
    """What the model says itself after a context, and how likely that is: the sum of its tokens as they are made.

    As many of them as a text has that says the same: a part of a character is no text, and what is made need not be what the
    tokenizer makes of it.
    """
    before = tokens(context)
    for limit in range(6, 0, -1):
        body = {"prompt": before, "max_tokens": limit, "temperature": 0, "logprobs": 1}
        choice = post("/v1/completions", body)["choices"][0]
        text, likelihoods = choice["text"], choice["logprobs"]["token_logprobs"]
        if "\ufffd" not in text and len(tokens(context + text)) == len(before) + len(likelihoods):
            return text, sum(likelihoods)
    raise AssertionError(f"no token behind {context!r} is a text")


def scored(context, text):
    """How likely a text is after a context, each of its tokens behind the ones before it."""
    before, whole = tokens(context), tokens(context + text)
    assert whole[: len(before)] == before, "the context is no beginning of the tokens"
    total = 0
    for end in range(len(before), len(whole)):
        echoed = {"prompt": whole[: end + 1], "max_tokens": 0, "echo": True, "logprobs": 1}
        total += post("/v1/completions", echoed)["choices"][0]["logprobs"]["token_logprobs"][-1]
    return total


def evaluated(questions, folder):
    """The harness's answer to each question: the log-likelihood and greediness of each choice; and its accuracy."""
    path = os.path.join(folder, "questions.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(question) + "\n" for question in questions)
    with open(os.path.join(folder, "kiln_tiny.yaml"), "w", encoding="utf-8") as file:
        file.write(TASK.format(questions=json.dumps(path)))
    # It finds out by itself that the server has a tokenizer.
    model = f"model=demo,base_url={URL}/v1/completions,max_length=2048,num_concurrent=2,max_retries=1"
    command = [sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", model]
    command += ["--tasks", "kiln_tiny", "--include_path", folder, "--output_path", folder, "--log_samples"]
    # Nothing is fetched, and nothing is kept beyond the folder.
    offline = {name: "1" for name in ["HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"]}
    subprocess.run(command, env={**os.environ, **offline, "HF_HOME": folder}, check=True, timeout=PATIENCE)
    [samples] = glob.glob(f"{folder}/**/samples_kiln_tiny_*.jsonl", recursive=True)
    [results] = glob.glob(f"{folder}/**/results_*.json", recursive=True)
    with open(samples, encoding="utf-8") as file:
        samples = sorted(map(json.loads, file), key=lambda sample: sample["doc_id"])
    with open(results, encoding="utf-8") as file:
        accuracy = json.load(file)["results"]["kiln_tiny"]["acc,none"]
    as_read = lambda pair: (float(pair[0]), str(pair[1]) == "True")
    return [[as_read(pair) for pair in sample["filtered_resps"]] for sample in samples], accuracy


class Harness(unittest.TestCase):
    def test_scores_are_those_that_the_tokens_have(self):
        own = [continued(context) for context in CONTEXTS]
        questions = [{"context": context, "choices": [text, WRONG], "answer": 0} for context, (text, _) in zip(CONTEXTS, own)]
        with tempfile.TemporaryDirectory() as folder:
            answers, accuracy = evaluated(questions, folder)
        self.assertEqual(len(answers), len(CONTEXTS))
        for context, (text, likelihood), (said, wrong) in zip(CONTEXTS, own, answers):
            # The text that the model makes itself is the likeliest token by token, and as likely as when it was made.
            self.assertAlmostEqual(said[0], likelihood, places=3, msg=context)
            self.assertTrue(said[1], context)
            self.assertAlmostEqual(wrong[0], scored(context, WRONG), places=3, msg=context)
            self.assertFalse(wrong[1], context)
        right = [answer[0][0] > answer[1][0] for answer in answers]
        self.assertEqual(accuracy, sum(right) / len(right))
        self.assertTrue(any(right))
