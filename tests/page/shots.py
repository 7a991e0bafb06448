"""Pictures of the page, for a person to look at."""
import os

import case
from front import answer_of
from test_looks import SIZES

ANSWER = """### Firing a kiln

A kiln is fired in **three stages**. Each takes a few hours, and none should be hurried:

1. *Bisque*: raise the heat slowly to `600 °C`.
   - open the lid a finger's breadth
   - wait until the steam is gone
2. *Glaze*: go on to **1,240 °C**.
3. *Cooling*: do not open it before it is below 100 °C.

| stage | cone | hours |
| --- | --- | --- |
| bisque | 06 | 8 |
| glaze | 6 | 7 |

```python
def rate(start, end, hours):
    return (end - start) / hours
```

> Wear gloves, and never look into the spy hole without glasses.
"""


def take(folder):
    os.makedirs(folder, exist_ok=True)
    for width, height in SIZES:
        for dark in [False, True]:
            shoot_all(os.path.join(folder, f"{width}-{'dark' if dark else 'light'}"), (width, height), dark)


def shoot_all(name, size, dark):
    loads = iter([0, 12, 40, 44, 61.4])
    case.front.replace("/status", lambda exchange: case.status(tokens_per_s=next(loads, 61.4))(exchange))
    page = case.browser.open(case.front.url, size=size, dark=dark)
    page.until_text("#health", "Ready")
    page.shoot(f"{name}-welcome.png")
    case.front.take(answer_of(ANSWER))
    ask(page, "How do I fire a kiln, and how fast may it get hot?")
    page.until("document.querySelector('.turn[aria-busy=false]')")
    page.run("conversation.scrollTop = 0")
    page.shoot(f"{name}-answer.png")

    def half(exchange):
        exchange.begin()
        exchange.say("Stoneware shrinks by about 12 % in all. Half of that ")
        exchange.hold()

    case.front.take(half)
    ask(page, "How much does stoneware shrink?")
    page.until_text(".turn:last-child .answer", "Half of that")
    page.shoot(f"{name}-streaming.png")
    page.run("new Promise((resolve) => setTimeout(resolve, 600))")
    page.key("Escape")
    page.until_text(".turn:last-child .note", "Stopped")
    page.click("#status-open")
    page.run("new Promise((resolve) => setTimeout(resolve, 6000))")
    page.shoot(f"{name}-status.png")
    page.key("Escape")
    case.front.replace("/status", lambda exchange: exchange.send(502))
    case.front.take(answer_of("Porcelain shrinks", last=b""))
    ask(page, "And porcelain?")
    page.until_text(".turn:last-child .note", "cut off")
    page.until_text("#banner", "cannot be reached")
    page.shoot(f"{name}-gone.png")
    page.run("document.getElementById('key-dialog').showModal()")
    page.shoot(f"{name}-key.png")
    page.close()


def ask(page, text):
    page.click("#question")
    page.type(text)
    page.click("#send")
