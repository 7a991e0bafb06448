// The conversation as it is seen: each question with its answer, and which part of them is in view.

import { Markdown } from './markdown.js';
import { count, language, text, whole } from './owner.js';

const get = (id) => document.getElementById(id);
const conversation = get('conversation');

/** Whether the newest text is kept in view. It is not while the reader looks at something above it. */
let follows = true;

/** One question and its answer on the page. */
export class TurnView {
  #turn;
  #again;
  #node = make('article', 'turn');
  #memory = make('p', 'memory');
  #answer = make('div', 'answer');
  #actions = make('p', 'actions');
  #note = make('p', 'note');
  #markdown = new Markdown(this.#answer);
  #frame = 0;
  #countdown = 0;

  /** `again` asks the question once more. */
  constructor(turn, again) {
    this.#turn = turn;
    this.#again = again;
    const asked = make('div', 'question', turn.question);
    asked.dir = 'auto';
    this.#node.append(make('h2', 'visually-hidden', text('question')), asked, this.#memory);
    this.#node.append(make('h2', 'visually-hidden', text('answer')), this.#answer, this.#actions, this.#note);
    get('turns').append(this.#node);
  }

  begin() {
    this.#node.setAttribute('aria-busy', 'true');
    this.#node.classList.remove('fault');
    this.#actions.replaceChildren();
    this.#say('');
    this.#draw();
  }

  add(piece) {
    this.#turn.answer += piece;
    this.#say('');
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  /** Says that the model was asked without the oldest `forgotten` of `all` questions before. */
  forget(forgotten, all) {
    this.#memory.textContent = text('is-forgotten', { forgotten: whole(forgotten), all: whole(all) });
    scrollToEnd();
  }

  /** Says what is waited for, with the seconds that are left. Only the first is announced. */
  wait(sentence, seconds = 0) {
    const said = (left) => `${sentence} ${text('is-asked-again', { seconds: count(left, 'second') })}`;
    announce(seconds ? said(seconds) : sentence);
    this.#say(sentence);
    if (!seconds) return;
    const until = performance.now() + seconds * 1000;
    const show = () => {
      if (!this.#node.isConnected) return clearInterval(this.#countdown);
      this.#say(said(Math.max(Math.ceil((until - performance.now()) / 1000), 0)), true);
    };
    this.#countdown = setInterval(show, 250);
    show();
  }

  /** `note` is what is said below: `{ text, message, isFault }`, of which `message` is the server's own, or null. */
  end(note) {
    this.#node.setAttribute('aria-busy', 'false');
    this.#draw();
    this.#say(note?.text ?? '');
    if (note?.message !== undefined) this.#note.replaceChildren(...quoting(note.message));
    const said = this.#note.textContent;
    this.#node.classList.toggle('fault', note?.isFault === true);
    if (this.#turn.answer) this.#actions.replaceChildren(...actionsFor(this.#answer));
    if (note?.isFault) {
      const again = make('button', 'quiet', text('try-again'));
      again.type = 'button';
      again.addEventListener('click', this.#again);
      this.#note.replaceChildren(wrap(...this.#note.childNodes), again);
    }
    scrollToEnd();
    announce([this.#memory.textContent, this.#answer.innerText, said].filter(Boolean).join('\n'));
  }

  #draw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#markdown.show(this.#turn.answer);
    scrollToEnd();
  }

  #say(sentence, counts = false) {
    if (!counts) clearInterval(this.#countdown);
    if (this.#note.textContent === sentence) return;
    this.#note.textContent = sentence;
    scrollToEnd();
  }
}

/** The page's sentence around what the server says in English. */
function quoting(message) {
  const [before, after] = text('is-refused', { message: '\n' }).split('\n');
  const said = make('span', '', message);
  said.lang = 'en';
  said.dir = 'auto';
  return [before, said, after];
}

// --- What a reader may do with an answer ---

/** The answer that is read aloud, or was last. */
let spoken = null;
// A browser looks for its voices once it is asked, and has them later.
window.speechSynthesis?.getVoices();

/** As far as the browser can. */
function actionsFor(answer) {
  const actions = [];
  // Only a page from this machine or over TLS may write to the clipboard.
  if (navigator.clipboard) {
    actions.push(action('copy', async (button) => {
      const isCopied = await navigator.clipboard.writeText(answer.innerText).then(() => true, () => false);
      button.textContent = text(isCopied ? 'copied' : 'not-copied');
      announce(text(isCopied ? 'is-copied' : 'is-not-copied'));
    }));
  }
  if (hasVoice()) {
    actions.push(action('read-aloud', () => {
      const isSpoken = speechSynthesis.speaking && spoken === answer;
      speechSynthesis.cancel();
      if (isSpoken) return;
      spoken = answer;
      const said = new SpeechSynthesisUtterance(answer.innerText);
      said.lang = language;
      speechSynthesis.speak(said);
    }));
  }
  return actions;
}

/** Whether the browser has a voice of the page's language. Another's would read it as nobody speaks. */
function hasVoice() {
  const first = (tag) => tag.split(/[-_]/)[0].toLowerCase();
  return window.speechSynthesis?.getVoices().some((voice) => first(voice.lang) === first(language)) ?? false;
}

function action(name, act) {
  const button = make('button', 'quiet', text(name));
  button.type = 'button';
  button.addEventListener('click', () => act(button));
  return button;
}

export function make(tag, className, content = '') {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = content;
  return node;
}

function wrap(...nodes) {
  const node = document.createElement('span');
  node.append(...nodes);
  return node;
}

/** Tells those who listen instead of reading. Tokens are not told one by one. */
export function announce(sentence) {
  get('announcer').textContent = sentence;
}

/** Empties the view. */
export function clearTurns() {
  follows = true;
  window.speechSynthesis?.cancel();
  get('turns').replaceChildren();
}

// --- What is in view ---

/** Shows the newest text, unless the reader looks at something above it. */
export function scrollToEnd(always = false) {
  follows ||= always;
  if (follows) conversation.scrollTop = conversation.scrollHeight;
  showWhereEnd();
}

function showWhereEnd() {
  const below = conversation.scrollHeight - conversation.clientHeight - conversation.scrollTop;
  get('to-end').hidden = follows || below < 1;
}

conversation.addEventListener('scroll', () => {
  follows = conversation.scrollHeight - conversation.clientHeight - conversation.scrollTop < 40;
  showWhereEnd();
});
new ResizeObserver(() => scrollToEnd()).observe(conversation);
get('to-end').addEventListener('click', () => {
  scrollToEnd(true);
  conversation.focus();
});
