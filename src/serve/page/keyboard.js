// A keyboard on the screen, for a kiosk that has no other. It writes where the field's caret is, and the field keeps the
// focus: what is typed on a keyboard that is plugged in goes the way it always goes.

import { language, owner, text, translate } from './owner.js';
import { drawing } from './parts.js';

/** Milliseconds after which a key that is held deletes again, and from then on from one time to the next. */
const HOLD_MS = 500;
const REPEAT_MS = 70;
/** The row that has the keys for capitals and for deleting at its ends. */
const EDGED_ROW = 2;

export class OnScreenKeyboard {
  #field;
  #node = document.getElementById('keyboard');
  #isComposing = false;
  /** `off`, `once` for the next letter, or `locked`. */
  #capitals = 'off';
  #repeat = 0;
  #acts;

  /** Writes into `field`; `send` sends what is written. */
  constructor(field, send) {
    this.#field = field;
    this.#acts = {
      shift: () => this.#setCapitals({ off: 'once', once: 'locked', locked: 'off' }[this.#capitals]),
      delete: () => this.#delete(),
      layer: () => this.#switch(),
      space: () => this.#insert(' '),
      hide: () => this.hide(),
      send,
    };
    this.build();
    // The system's own keyboard stays away.
    field.inputMode = 'none';
    field.addEventListener('focus', () => this.show());
    field.addEventListener('click', () => this.show());
    field.addEventListener('compositionstart', () => (this.#isComposing = true));
    field.addEventListener('compositionend', () => (this.#isComposing = false));
    // The focus would leave the field with it.
    this.#node.addEventListener('mousedown', (event) => event.preventDefault());
    this.#node.addEventListener('contextmenu', (event) => event.preventDefault());
    this.#node.addEventListener('pointerdown', (event) => this.#press(event));
    for (const end of ['pointerup', 'pointercancel', 'blur']) addEventListener(end, () => this.#release());
    // A click without a pointer is that of who reaches keys in another way, as screen readers do.
    this.#node.addEventListener('click', (event) => event.detail === 0 && this.#act(event.target.closest('button')));
  }

  get isShown() {
    return !this.#node.hidden;
  }

  show() {
    this.#node.hidden = false;
  }

  hide() {
    this.#release();
    this.#node.hidden = true;
  }

  // --- Its keys ---

  /** Gives it the keys of the page's language. */
  build() {
    const layers = ['letters', 'symbols'].map((layer) => {
      const node = document.createElement('div');
      node.className = 'layer';
      node.dataset.layer = layer;
      node.hidden = layer !== 'letters';
      const rows = owner.texts[layer].map((row) => rowOf(...characters(row).map(character)));
      const edged = rows[Math.min(EDGED_ROW, rows.length - 1)];
      if (layer === 'letters') edged.prepend(drawn('shift', 'key-shift'));
      edged.append(drawn('delete', 'key-delete'));
      node.append(...rows);
      return node;
    });
    const bottom = rowOf(named('layer', 'key-symbols'), character(','), drawn('space', 'key-space'), character('.'),
      character('?'), drawn('hide', 'key-hide'), drawn('send', 'key-send'));
    bottom.classList.add('bottom');
    this.#node.replaceChildren(...layers, bottom);
    this.#setCapitals('off');
  }

  #switch() {
    for (const layer of this.#node.querySelectorAll('.layer')) layer.hidden = !layer.hidden;
    const isLetters = !this.#node.querySelector('[data-layer=letters]').hidden;
    this.#node.querySelector('[data-act=layer]').textContent = text(isLetters ? 'key-symbols' : 'key-letters');
  }

  #setCapitals(state) {
    this.#capitals = state;
    const shift = this.#node.querySelector('[data-act=shift]');
    shift.setAttribute('aria-pressed', String(state !== 'off'));
    shift.dataset.capitals = state;
    for (const key of this.#node.querySelectorAll('[data-layer=letters] [data-key]')) {
      key.textContent = this.#cased(key.dataset.key);
    }
  }

  /** A letter as the next tap writes it. One whose capital is two letters, as that of ß, has none. */
  #cased(letter) {
    const capital = letter.toLocaleUpperCase(language);
    return this.#capitals === 'off' || characters(capital).length > 1 ? letter : capital;
  }

  // --- What a tap does ---

  #press(event) {
    const key = event.target.closest('button');
    if (!key || event.button !== 0) return;
    this.#release();
    if (document.activeElement !== this.#field) this.#field.focus({ preventScroll: true });
    this.#act(key);
    if (key.dataset.act !== 'delete') return;
    const again = () => {
      this.#act(key);
      this.#repeat = setTimeout(again, REPEAT_MS);
    };
    this.#repeat = setTimeout(again, HOLD_MS);
  }

  #release() {
    clearTimeout(this.#repeat);
  }

  #act(key) {
    if (!key) return;
    if (this.#isComposing) {
      // What an input method has in hand is completed before something else is written.
      this.#field.blur();
      this.#field.focus({ preventScroll: true });
    }
    if (key.dataset.act) return this.#acts[key.dataset.act]();
    const isLetter = key.closest('[data-layer=letters]') !== null;
    this.#insert(isLetter ? this.#cased(key.dataset.key) : key.dataset.key);
    if (isLetter && this.#capitals === 'once') this.#setCapitals('off');
  }

  #insert(characters) {
    this.#replace(this.#field.selectionStart, characters, 'insertText');
  }

  /** Deletes what is selected, or what a reader takes for the character before the caret. */
  #delete() {
    const { selectionStart: start, selectionEnd: end, value } = this.#field;
    const last = start < end ? '' : (characters(value.slice(Math.max(start - 64, 0), start)).at(-1) ?? '');
    this.#replace(start - last.length, '', 'deleteContentBackward');
  }

  #replace(start, characters, inputType) {
    const field = this.#field;
    field.setRangeText(characters, start, field.selectionEnd, 'end');
    field.dispatchEvent(new InputEvent('input', { bubbles: true, inputType, data: characters || null }));
    if (field.selectionEnd === field.value.length) field.scrollTop = field.scrollHeight;
  }
}

/** What a reader takes for characters. */
function characters(row) {
  return [...new Intl.Segmenter(language).segment(row)].map(({ segment }) => segment);
}

function rowOf(...keys) {
  const row = document.createElement('div');
  row.className = 'row';
  row.append(...keys);
  return row;
}

/** A key. No Tab goes through all of them: who has that key has the others too. */
function keyOf(content) {
  const key = document.createElement('button');
  key.type = 'button';
  key.className = 'key';
  key.tabIndex = -1;
  key.append(content);
  return key;
}

function character(content) {
  const key = keyOf(content);
  key.dataset.key = content;
  return key;
}

function named(act, name) {
  const key = keyOf(text(name));
  key.dataset.act = act;
  return key;
}

function drawn(act, name) {
  const key = keyOf(drawing(act));
  key.dataset.act = act;
  key.dataset.label = name;
  translate(key);
  return key;
}
