// What the page is put together from: elements, drawings, buttons, and what is told to those who listen.

import { text, translate } from './owner.js';

/** Milliseconds for which a button says what became of a copy. */
const SAID_MS = 2000;

/** The drawings of buttons, as paths in a square of 24. */
const DRAWINGS = {
  copy: 'M9 8h11v13H9zM15 8V3H4v13h5',
  copied: 'M4 12.5l5.5 5.5L20 7',
  'not-copied': 'M6 6l12 12M18 6L6 18',
  'read-aloud': 'M4 9.5h4l5-4.5v14l-5-4.5H4zM16.5 9a4 4 0 0 1 0 6M19 6a8 8 0 0 1 0 12',
  regenerate: 'M19.5 13a7.5 7.5 0 1 1-2.2-6.3L20 9.5M20 4v5.5h-5.5',
  edit: 'M4 20l1.2-4.6L16 4.6 19.4 8 8.6 18.8z',
  shift: 'M12 4l8 9h-4v6H8v-6H4z',
  delete: 'M9 5h12v14H9l-6-7zM12 9l6 6M18 9l-6 6',
  space: 'M4 10v5h16v-5',
  hide: 'M3 4h18v10H3zM7 8h.01M12 8h.01M17 8h.01M8 11h8M9 18l3 3 3-3',
  send: 'M12 19V5M6 11l6-6 6 6',
};

export function make(tag, className, content = '') {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = content;
  return node;
}

/** An SVG of one `shape` with these attributes, for who sees. */
export function graphic(shape, attributes, frameAttributes = {}) {
  const [frame, part] = ['svg', shape].map((tag) => document.createElementNS('http://www.w3.org/2000/svg', tag));
  for (const [name, value] of Object.entries({ 'aria-hidden': 'true', ...frameAttributes })) frame.setAttribute(name, value);
  for (const [name, value] of Object.entries(attributes)) part.setAttribute(name, value);
  frame.append(part);
  return frame;
}

/** The drawing of a name. */
export function drawing(name) {
  return graphic('path', { d: DRAWINGS[name] }, { viewBox: '0 0 24 24' });
}

/** A button that shows a drawing. Its `label` is the name of the text that says what it does. */
export function iconButton(picture, label, act) {
  const button = make('button', 'icon');
  button.type = 'button';
  button.dataset.label = label;
  button.append(drawing(picture));
  button.addEventListener('click', () => act(button));
  translate(button);
  return button;
}

/** A button that copies what `contentOf` gives. Null: only a page from this machine or over TLS may copy. */
export function copyButton(label, contentOf) {
  if (!navigator.clipboard) return null;
  let timer = 0;
  const show = (button, picture, name) => {
    button.replaceChildren(drawing(picture));
    button.dataset.label = name;
    translate(button);
  };
  return iconButton('copy', label, async (button) => {
    const isCopied = await navigator.clipboard.writeText(contentOf()).then(() => true, () => false);
    const state = isCopied ? 'copied' : 'not-copied';
    show(button, state, state);
    announce(text(isCopied ? 'copied' : 'is-not-copied'));
    clearTimeout(timer);
    timer = setTimeout(() => show(button, 'copy', label), SAID_MS);
  });
}

/** Tells those who listen instead of reading. Tokens are not told one by one. */
export function announce(sentence) {
  document.getElementById('announcer').textContent = sentence;
}
