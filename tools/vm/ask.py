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


def main(at, seconds, question, wanted):
    end = time.monotonic() + float(seconds)
    while True:
        try:
            page = ask(f"http://{at}/")
            break
        except OSError as e:
            if time.monotonic() > end:
                sys.exit(f"no page at {at}: {e}")
            time.sleep(0.5)
    if "<html" not in page:
        sys.exit(f"this is no page: {page[:200]}")
    body = {"messages": [{"role": "user", "content": question}]}
    reply = json.loads(ask(f"http://{at}/v1/chat/completions", body))["choices"][0]["message"]["content"]
    if reply != wanted:
        sys.exit(f"the answer is: {reply}")
    print(f"a page of {len(page)} bytes, and the answer")


main(*sys.argv[1:])
