"""Pictures of the page, for a person to look at."""
import os

import case
from front import DONE, answer_of
from test_looks import SIZES

ANSWER = """### Firing a kiln

A kiln is fired in **three stages**. Each takes a few hours, and none should be hurried:

1. *Bisque*: raise the heat slowly to `600 °C`.
   - open the lid a finger's breadth
   - wait until the steam is gone
2. *Glaze*: go on to **1,240 °C**.
3. *Cooling*: do not open it before it is below 100 °C.

- [x] dry the pieces for a week
- [ ] look up the [cone's heat](https://kiln.example/cones_(orton))

| stage | cone | hours | heat at the end | what happens to the clay meanwhile |
| --- | :-: | --: | --: | --- |
| bisque | 06 | 8 | 999 °C | water leaves it |
| glaze | 6 | 7 | 1,240 °C | it becomes dense |

```python
def rate(start, end, hours):
    return (end - start) / hours
```

هذا سطر بالعربية.

> Wear gloves, and never look into the spy hole without glasses.
"""


# A symbol and a name, in ink for a light ground.
LOGO = b"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 168 40" fill="#1d3557">
<path d="M4 36V14L20 4l16 10v22h-6V18H10v18zM14 22h4v14h-4zm8 0h4v14h-4z"/>
<text x="46" y="29" font-family="sans-serif" font-size="24" font-weight="bold">Museum</text></svg>"""


def take(folder):
    os.makedirs(folder, exist_ok=True)
    for width, height in SIZES:
        for dark in [False, True]:
            name = os.path.join(folder, f"{width}-{'dark' if dark else 'light'}")
            shoot_all(name, (width, height), dark)
            shoot_owners(name, (width, height), dark)


def dress(language, **changed):
    settings = {**case.settings_of(language), **changed}
    case.front.replace("/page.json", lambda exchange: exchange.send(200, settings))


def shoot_owners(name, size, dark):
    """The page of an owner, in each language: before a question, with keys, where it cannot answer, and full."""
    case.front.replace("/status", case.status())
    case.front.replace("/logo", lambda exchange: exchange.send(200, LOGO, {"Content-Type": "image/svg+xml"}))
    for language in ["en", "de", "fr", "es"]:
        greeting = case.settings_of(language)["texts"]["greeting"]
        dress(language, title="Museum", has_logo=True, has_keyboard=True,
              questions=[greeting, "When do you open on Sunday?", "Wo ist die Garderobe?"])
        page = case.browser.open(case.front.url, size=size, dark=dark, languages=language)
        page.until_text("#greeting", greeting)
        page.until("document.querySelector('h1 img')?.complete")
        page.shoot(f"{name}-{language}-welcome.png")
        page.click("#question")
        page.type("Stoneware or porcelain")
        page.until("document.getElementById('keyboard').checkVisibility()")
        page.shoot(f"{name}-{language}-keyboard.png")
        page.run("document.querySelector('[data-act=layer]').click()")
        page.shoot(f"{name}-{language}-symbols.png")
        page.run("document.querySelector('[data-act=layer]').click()")

        def full(exchange):
            exchange.begin({"Content-Type": "text/event-stream", "Kiln-Forgotten-Exchanges": "1"})
            exchange.say("Porcelain shrinks most: by about 14 %.")
            exchange.put(DONE)
            exchange.end()

        case.front.take(answer_of("Both.", "\n\nStoneware is the easier one."))
        case.front.take(full)
        case.front.take(lambda exchange: exchange.send(400, {"error": {"message": "the device was lost"}}))
        page.click(".bottom [data-act=send]")
        for count, asked in enumerate(["Which one shrinks most?", "And how hot?"], 2):
            page.until(f"document.querySelectorAll('.turn[aria-busy=false]').length === {count - 1}")
            ask(page, asked)
        page.until("document.querySelectorAll('.turn[aria-busy=false]').length === 3")
        page.shoot(f"{name}-{language}-full.png")
        page.click("#status-open")
        page.until_text("#facts", "gemma")
        page.shoot(f"{name}-{language}-status.png")
        page.key("Escape")
        page.run("document.getElementById('idle-dialog').showModal()")
        page.shoot(f"{name}-{language}-idle.png")
        page.key("Escape")
        page.run("document.getElementById('language-dialog').showModal()")
        page.shoot(f"{name}-{language}-languages.png")
        page.close()
    case.front.reset()


def shoot_all(name, size, dark):
    loads = iter([0, 12, 40, 44, 61.4])
    case.front.replace("/status", lambda exchange: case.status(tokens_per_s=next(loads, 61.4))(exchange))
    dress("en", has_logo=False)
    page = case.browser.open(case.front.url, size=size, dark=dark)
    page.until_text("#health", "Ready")
    page.shoot(f"{name}-welcome.png")
    case.front.take(answer_of(ANSWER))
    ask(page, "How do I fire a kiln, and how fast may it get hot?")
    page.until("document.querySelector('.turn[aria-busy=false]')")
    page.run("conversation.scrollTop = 0")
    page.shoot(f"{name}-answer.png")
    page.click("[data-label=edit]")
    page.shoot(f"{name}-edit.png")
    page.key("Escape")

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
