// The switch of languages: each by its own name. A kiosk's next visitor finds the first one again.

import { language, owner, speak } from './owner.js';
import { make } from './parts.js';

const get = (id) => document.getElementById(id);
const dialog = get('language-dialog');
/** Whether a visitor chose the language. */
let isChosen = false;
/** What is done once the page has turned to another language. */
let changed;

/** Shows the switch where there is a choice. `onChange` is called once the page has turned to another language. */
export function offerLanguages(onChange) {
  changed = onChange;
  get('languages').append(...owner.languages.map((tag) => {
    const [entry, button] = [make('li', ''), make('button', 'quiet', nameOf(tag))];
    button.type = 'button';
    button.lang = tag;
    button.dir = 'auto';
    button.addEventListener('click', () => {
      dialog.close();
      isChosen = true;
      turn(tag);
    });
    entry.append(button);
    return entry;
  }));
  get('language-open').hidden = owner.languages.length < 2;
  get('language-open').addEventListener('click', () => {
    dialog.showModal();
    dialog.querySelector('[aria-current=true]')?.focus();
  });
  show();
}

/** Turns back to the language of the browser. */
export function forgetLanguage() {
  if (isChosen) turn('');
  isChosen = false;
}

async function turn(tag) {
  if (!(await speak(tag))) return;
  show();
  changed();
}

function show() {
  get('language-name').textContent = nameOf(language);
  for (const button of dialog.querySelectorAll('[lang]')) {
    button.setAttribute('aria-current', String(button.lang === language));
  }
}

/** A language in its own words, as a heading has it. */
function nameOf(tag) {
  const name = new Intl.DisplayNames([tag], { type: 'language', languageDisplay: 'standard' }).of(tag);
  return name.charAt(0).toLocaleUpperCase(tag) + name.slice(1);
}
