// The marks within a line of an answer: bold, italic, struck, code, and links as text.
//
// A link is its text with its address behind it, and leads nowhere: an answer may name any address, and a kiosk's visitor
// would not come back from it.

/** Most characters of a link's text and of its address. What is longer stays as it is written. */
const LINK_TEXT = 500;
const LINK_ADDRESS = 2000;

/** Marks of text and the elements they stand for, the longest first. */
const MARKS = [['***', 'strong', 'em'], ['**', 'strong'], ['__', 'strong'], ['~~', 's'], ['*', 'em'], ['_', 'em']];
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}]/u;

/** Appends `text` to `parent`, its marks as elements. */
export function inline(parent, text) {
  let plain = '';
  const flush = () => {
    if (plain) parent.append(plain);
    plain = '';
  };
  for (let at = 0; at < text.length; ) {
    const marked = codeAt(text, at) ?? linkAt(text, at) ?? emphasisAt(text, at);
    if (marked) {
      flush();
      parent.append(...marked.nodes);
      at = marked.end;
    } else if (text[at] === '\\' && ESCAPABLE.test(text[at + 1] ?? '')) {
      plain += text[at + 1];
      at += 2;
    } else {
      // A run of marks that open nothing is text as a whole.
      const run = /^(`+|\*+|_+|~+)/.exec(text.slice(at, at + 64))?.[0] ?? text[at];
      plain += run;
      at += run.length;
    }
  }
  flush();
  return parent;
}

function codeAt(text, at) {
  if (text[at] !== '`') return null;
  const mark = /^`+/.exec(text.slice(at, at + 64))[0];
  const end = text.indexOf(mark, at + mark.length);
  if (end < 0 || text[end + mark.length] === '`') return null;
  return { nodes: [element('code', text.slice(at + mark.length, end))], end: end + mark.length };
}

function emphasisAt(text, at) {
  for (const [mark, ...tags] of MARKS) {
    if (!text.startsWith(mark, at)) continue;
    const start = at + mark.length;
    const end = isSpace(text[start]) || isWithinWord(mark, text[at - 1]) ? -1 : closing(mark, text, start);
    if (end < 0) continue;
    const nodes = tags.map((tag) => element(tag));
    nodes.reduce((outer, inner) => (outer.append(inner), inner));
    inline(nodes.at(-1), text.slice(start, end));
    return { nodes: [nodes[0]], end: end + mark.length };
  }
  return null;
}

/** Where `mark` closes what opened before `start`, or -1. */
function closing(mark, text, start) {
  for (let end = text.indexOf(mark, start); end >= 0; end = text.indexOf(mark, end + 1)) {
    const after = text[end + mark.length];
    if (mark.length === 1 && after === mark) {
      end += 1; // that is a mark of two
    } else if (end > start && !isSpace(text[end - 1]) && !isWithinWord(mark, after) && after !== '*') {
      return end;
    }
  }
  return -1;
}

function isSpace(character) {
  return character === undefined || /\s/.test(character);
}

/** A single mark beside a letter or digit is part of it, as in 2*3 or a_b. */
function isWithinWord(mark, neighbour) {
  return (mark.length === 1 || mark === '__') && neighbour !== undefined && WORD.test(neighbour);
}

// --- Links ---

/** An address by itself, up to the blank or the sign that ends its sentence. */
const BARE = /(?:https?:\/\/|www\.)[^\s<>|]*[^\s<>|.,;:!?'"*_~`)\]}]/y;
/** The same in angle brackets. */
const BRACKETED = /<([a-z][a-z0-9+.-]{1,31}:[^\s<>]*|[^\s<>@]+@[^\s<>@]+)>/iy;
/** What follows a link's text: its address, in which parentheses come in pairs, and its title, which is left out. */
const TARGET = /\( *(?:<([^<>\n]*)>|([^\s()<>]*(?:\([^\s()]*\)[^\s()]*)*))(?: +(?:"[^"]*"|'[^']*'))? *\)/y;

function linkAt(text, at) {
  if (text[at] === '<') {
    const bracketed = matchAt(BRACKETED, text, at);
    return bracketed && { nodes: [address(bracketed[1])], end: at + bracketed[0].length };
  }
  if (text[at] === 'h' || text[at] === 'w') {
    const bare = isWithinWord('_', text[at - 1]) ? null : matchAt(BARE, text, at);
    return bare && { nodes: [address(bare[0])], end: at + bare[0].length };
  }
  const start = text[at] === '[' ? at : text.startsWith('![', at) ? at + 1 : -1;
  const end = start < 0 ? -1 : closingBracket(text, start);
  const target = end < 0 ? null : matchAt(TARGET, text, end + 1);
  if (!target) return null;
  const [shown, to] = [text.slice(start + 1, end).trim(), target[1] ?? target[2]];
  const after = end + 1 + target[0].length;
  if (!to || !shown || shown === to) return { nodes: [to ? address(to) : shown], end: after };
  return { nodes: [...inline(element('span'), shown).childNodes, ' (', address(to), ')'], end: after };
}

/** The match of a pattern right at a place. */
function matchAt(pattern, text, at) {
  pattern.lastIndex = 0;
  return pattern.exec(text.slice(at, at + LINK_ADDRESS));
}

/** The bracket that closes the one at `start`, or -1. */
function closingBracket(text, start) {
  let depth = 0;
  for (let at = start; at < Math.min(text.length, start + LINK_TEXT); at += 1) {
    if (text[at] === '\\') at += 1;
    else if (text[at] === '[') depth += 1;
    else if (text[at] === ']' && (depth -= 1) === 0) return at;
  }
  return -1;
}

function address(content) {
  const node = element('span', content);
  node.className = 'address';
  node.dir = 'ltr';
  return node;
}

export function element(tag, text = '') {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  return node;
}
