// The conversation as it is seen: each question with its answer, and which part of them is in view.

import { Markdown } from './markdown.js';
import { count, language, text, translate, whole } from './owner.js';
import { announce, copyButton, iconButton, make } from './parts.js';

const get = (id) => document.getElementById(id);
const conversation = get('conversation');

/** Whether the newest text is kept in view. It is not while the reader looks at something above it. */
let follows = true;
/** What the conversation lost of its beginning. It is said in one place, where it began, and its numbers go on there. */
const memory = make('p', 'memory');

/** One question and its answer on the page. */
export class TurnView {
  #turn;
  #does;
  #node = make('article', 'turn');
  #asked = make('div', 'question');
  #answer = make('div', 'answer');
  #thought = foldedThought();
  #actions = make('p', 'actions');
  #note = make('p', 'note');
  #markdown = new Markdown(this.#answer);
  #frame = 0;
  #countdown = 0;
  /** The sentence of what is forgotten, where this answer is the first without it. */
  #loss = '';

  /** `does` has what the reader may do with the last turn: `again` asks it once more, `edit` lets its question be changed. */
  constructor(turn, does) {
    this.#turn = turn;
    this.#does = does;
    this.#asked.dir = 'auto';
    const edit = iconButton('edit', 'edit', does.edit);
    edit.classList.add('of-last');
    const row = make('div', 'asked');
    row.append(edit, this.#asked);
    this.#node.append(heading('question'), row, heading('answer'), this.#answer, this.#actions, this.#note);
    this.reword();
    get('turns').append(this.#node);
  }

  /** Shows the question as it is now. */
  reword() {
    this.#asked.textContent = this.#turn.question;
  }

  begin() {
    this.#node.setAttribute('aria-busy', 'true');
    this.#node.classList.remove('fault');
    this.#actions.replaceChildren();
    this.#thought.remove();
    this.#thought = foldedThought();
    this.#say('');
    this.#draw();
  }

  /** Adds to the model's thought, which is folded away before the answer and no part of it. */
  think(piece) {
    if (!this.#thought.isConnected) this.#answer.before(this.#thought);
    this.#thought.lastChild.textContent += piece;
    this.#say('');
    scrollToEnd();
  }

  add(piece) {
    this.#turn.answer += piece;
    this.#say('');
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  /** Says that the model was asked without the oldest `forgotten` of `all` questions before. */
  forget(forgotten, all) {
    memory.textContent = text('is-forgotten', { forgotten: whole(forgotten), all: whole(all) });
    if (memory.isConnected) return;
    this.#loss = memory.textContent;
    this.#node.querySelector('.asked').after(memory);
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
    const again = note?.isFault ? null : iconButton('regenerate', 'regenerate', this.#does.again);
    again?.classList.add('of-last');
    this.#actions.replaceChildren(...[...this.#turn.answer ? actionsFor(this.#answer) : [], again].filter(Boolean));
    if (note?.isFault) {
      const retry = make('button', 'quiet', text('try-again'));
      retry.type = 'button';
      retry.addEventListener('click', this.#does.again);
      this.#note.replaceChildren(wrap(...this.#note.childNodes), retry);
    }
    scrollToEnd();
    announce([this.#loss, this.#answer.innerText, said].filter(Boolean).join('\n'));
    this.#loss = '';
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

/** An empty thought. Its summary is its name for those who listen. */
function foldedThought() {
  const thought = make('details', 'thought');
  const [name, said] = [make('summary', ''), make('div', '')];
  name.dataset.text = 'thought';
  translate(name);
  said.dir = 'auto';
  thought.append(name, said);
  return thought;
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
  const read = () => {
    const isSpoken = speechSynthesis.speaking && spoken === answer;
    speechSynthesis.cancel();
    if (isSpoken) return;
    spoken = answer;
    const said = new SpeechSynthesisUtterance(answer.innerText);
    said.lang = language;
    speechSynthesis.speak(said);
  };
  return [copyButton('copy', () => answer.innerText), hasVoice() ? iconButton('read-aloud', 'read-aloud', read) : null];
}

/** Whether the browser has a voice of the page's language. Another's would read it as nobody speaks. */
function hasVoice() {
  const first = (tag) => tag.split(/[-_]/)[0].toLowerCase();
  return window.speechSynthesis?.getVoices().some((voice) => first(voice.lang) === first(language)) ?? false;
}

/** A heading for those who listen. */
function heading(name) {
  const node = make('h2', 'visually-hidden');
  node.dataset.text = name;
  translate(node);
  return node;
}

function wrap(...nodes) {
  const node = document.createElement('span');
  node.append(...nodes);
  return node;
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
  if (follows && get('turns').hasChildNodes()) conversation.scrollTop = conversation.scrollHeight;
  showWhereEnd();
}

function showWhereEnd() {
  const below = conversation.scrollHeight - conversation.clientHeight - conversation.scrollTop;
  get('to-end').hidden = follows || below < 1 || !get('turns').hasChildNodes();
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
