"""Asks a server that starts: its page, then a question.

usage: ask.py ADDRESS:PORT SECONDS QUESTION ANSWER
Ends with 1 where it does not answer so within SECONDS.
"""
import json
import sys
import time
import urllib.request


def ask(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    # The server is this machine's own, whatever proxy is set.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=300) as answer:
        return answer.read().decode()


def ask_until(end, url, body=None):
    """Asks again where there is no answer yet: the server starts, or loads its model."""
    while True:
        try:
            return ask(url, body)
        except OSError as e:
            if time.monotonic() > end:
                sys.exit(f"no answer of {url}: {e}")
            time.sleep(0.5)


def main(at, seconds, question, wanted):
    end = time.monotonic() + float(seconds)
    page = ask_until(end, f"http://{at}/")
    if "<html" not in page:
        sys.exit(f"this is no page: {page[:200]}")
    body = {"messages": [{"role": "user", "content": question}]}
    reply = json.loads(ask_until(end, f"http://{at}/v1/chat/completions", body))["choices"][0]["message"]["content"]
    if reply != wanted:
        sys.exit(f"the answer is: {reply}")
    print(f"a page of {len(page)} bytes, and the answer")


main(*sys.argv[1:])
