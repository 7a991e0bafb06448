// What the page's owner wants of it, and the words of its language. All other modules wait for them.

/** Milliseconds to the next try where the server does not say. */
const AGAIN_MS = 1000;

/** What `/page.json` says. */
export let owner = await ask('');
/** The tag of the page's language. */
export let language = owner.texts.language;
/** The language that was asked for last: a tag, or empty for the browser's. */
let wanted = '';

async function ask(tag) {
  const headers = tag ? { 'Accept-Language': tag } : {};
  for (;;) {
    try {
      const response = await fetch('page.json', { headers, cache: 'no-store', signal: AbortSignal.timeout(10_000) });
      if (response.ok) return await response.json();
    } catch {
      // It went away since it sent the page, and may be back soon.
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

/** Turns the page to the language of a tag, or to the browser's where it is empty. False where another was asked for since. */
export async function speak(tag) {
  wanted = tag;
  const found = await ask(tag);
  if (wanted !== tag) return false;
  owner = found;
  language = owner.texts.language;
  dress();
  return true;
}

/** The text of a name, with `values` in the place of what stands in braces. */
export function text(name, values = {}) {
  return owner.texts[name].replace(/\{(\w+)\}/g, (_, value) => values[value]);
}

// --- Numbers as the language writes them ---

/** A whole number. */
export function whole(number) {
  return new Intl.NumberFormat(language, { maximumFractionDigits: 0 }).format(number ?? 0);
}

/** A number, with a digit behind the point where it is small. */
export function decimal(number) {
  return new Intl.NumberFormat(language, { maximumFractionDigits: number < 100 ? 1 : 0 }).format(number ?? 0);
}

/** A share of 1, in percent. */
export function percent(share) {
  return new Intl.NumberFormat(language, { style: 'percent' }).format(share);
}

/** A count of `unit`s, such as "5 seconds", or "5 sec" with `unitDisplay` short. */
export function count(number, unit, unitDisplay = 'long') {
  return new Intl.NumberFormat(language, { style: 'unit', unit, unitDisplay, maximumFractionDigits: 0 }).format(number);
}

/** A time in its two largest units. */
export function duration(seconds) {
  const units = [['day', 86400], ['hour', 3600], ['minute', 60], ['second', 1]];
  const counts = units.map(([unit, size], i) => [Math.floor((i ? seconds % units[i - 1][1] : seconds) / size), unit]);
  const first = counts.findIndex(([number]) => number > 0);
  if (first < 0) return count(0, 'second', 'short');
  return counts.slice(first, first + 2).map(([number, unit]) => count(number, unit, 'short')).join(' ');
}

// --- What the page shows from its beginning ---

/** Writes the texts that the markup names, and what the owner gave. */
export function dress() {
  const root = document.documentElement;
  root.lang = language;
  root.dir = owner.texts.direction;
  root.style.setProperty('--scale', String((owner.text_percent ?? 100) / 100));
  if (owner.accent) {
    root.style.setProperty('--owner-accent', owner.accent.light);
    root.style.setProperty('--owner-accent-dark', owner.accent.dark);
  }
  translate(root);
  const get = (id) => document.getElementById(id);
  const title = owner.title ?? 'Kiln';
  if (owner.title) document.title = title;
  if (owner.welcome) get('greeting').textContent = owner.welcome;
  if (owner.has_logo) showLogo(title);
  else get('title').textContent = title;
  get('status-open').hidden = owner.hides_status === true;
  document.body.removeAttribute('aria-busy');
}

/** Where a node names texts: for its content, for those who listen, for a field that is empty, and for its style. */
const PLACES = {
  text: (node, said) => (node.textContent = said),
  label(node, said) {
    node.setAttribute('aria-label', said);
    // Who points at a drawing reads it.
    if (node.classList.contains('icon')) node.title = said;
  },
  placeholder: (node, said) => (node.placeholder = said),
  hint: (node, said) => (node.dataset.said = said),
};

/** Writes the texts that a node and all within it name. What stands in their braces is in the node's own data. */
export function translate(node) {
  for (const [place, write] of Object.entries(PLACES)) {
    for (const found of [node, ...node.querySelectorAll(`[data-${place}]`)]) {
      if (found.dataset[place]) write(found, text(found.dataset[place], found.dataset));
    }
  }
}

/** The logo in the heading's place. One that is not made for a dark ground brings a light one. */
function showLogo(title) {
  const shown = document.querySelector('.logo img');
  if (shown) {
    shown.alt = title;
    return;
  }
  const [picture, image] = [document.createElement('picture'), document.createElement('img')];
  if (owner.has_dark_logo) {
    const dark = document.createElement('source');
    dark.media = '(prefers-color-scheme: dark)';
    dark.srcset = 'logo-dark';
    picture.append(dark);
  }
  picture.className = owner.has_dark_logo ? 'logo' : 'logo plated';
  image.alt = title;
  image.src = 'logo';
  picture.append(image);
  document.querySelector('h1').replaceChildren(picture);
  const icon = document.querySelector('link[rel=icon]');
  icon.removeAttribute('type');
  icon.href = 'logo';
}
