// An answer's Markdown as DOM nodes. Its text reaches the page only as text nodes, so nothing in it becomes markup.
//
// Known are paragraphs, headings, lists, quotes, fenced code, tables and rules, and in them bold, italic, struck and
// code. Links stay text, because a kiosk's page leads nowhere else.

import { text } from './owner.js';

/** Quotes and lists within each other. What lies deeper is shown as it is written. */
const DEPTH = 8;

// No two repetitions in a row match the same character: a model may write thousands of blanks.
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6}) +(.*)$/;
const RULE = /^([-*_])( *\1){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|(\d{1,9})[.)])( +|$)/;
const TABLE_RULE = /^\|? *:?-+:? *(\| *:?-+:? *)*\|?$/;

/** Shows a growing text. Blocks that the new text leaves as they were keep their nodes, and a reader's selection. */
export class Markdown {
  #parent;
  #shown = [];

  constructor(parent) {
    this.#parent = parent;
  }

  show(text) {
    const blocks = split(text.split('\n'));
    blocks.forEach((block, i) => {
      const source = block.lines.join('\n');
      if (this.#shown[i]?.source === source && this.#shown[i].kind === block.kind) return;
      const node = build(block, 0);
      // Each block is written in its own direction.
      node.dir ||= 'auto';
      if (this.#shown[i]) this.#shown[i].node.replaceWith(node);
      else this.#parent.append(node);
      this.#shown[i] = { kind: block.kind, source, node };
    });
    for (const { node } of this.#shown.splice(blocks.length)) node.remove();
  }
}

/** The blocks of `lines`: each with its kind and its own lines. */
function split(lines) {
  const blocks = [];
  for (let at = 0; at < lines.length; ) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const kind = kindAt(lines, at);
    const end = ENDS[kind](lines, at);
    blocks.push({ kind, lines: lines.slice(at, end) });
    at = end;
  }
  return blocks;
}

function kindAt(lines, at) {
  const line = lines[at];
  if (FENCE.test(line)) return 'code';
  if (HEADING.test(line)) return 'heading';
  if (RULE.test(line.trim())) return 'rule';
  if (QUOTE.test(line)) return 'quote';
  if (ITEM.test(line)) return 'list';
  if (line.includes('|') && lines[at + 1]?.includes('|') && TABLE_RULE.test(lines[at + 1].trim())) return 'table';
  return 'paragraph';
}

/** Where a block that starts at a line ends: the index after its last line. */
const ENDS = {
  code(lines, at) {
    return endOf(lines, at, (i) => i - 1 > at && closesFence(lines[i - 1], lines[at]));
  },
  heading: (_, at) => at + 1,
  rule: (_, at) => at + 1,
  quote: (lines, at) => endOf(lines, at, (i) => !QUOTE.test(lines[i])),
  table: (lines, at) => endOf(lines, at, (i) => !lines[i].includes('|')),
  paragraph: (lines, at) => endOf(lines, at, (i) => !lines[i].trim() || kindAt(lines, i) !== 'paragraph'),
  list(lines, at) {
    const first = ITEM.exec(lines[at]);
    const belongs = (line) => indent(line) > first[1].length + 1 || isNext(ITEM.exec(line), first);
    return endOf(lines, at, (i) => {
      if (lines[i].trim()) return !belongs(lines[i]) && (!lines[i - 1].trim() || kindAt(lines, i) !== 'paragraph');
      const next = lines.slice(i).find((line) => line.trim());
      return next === undefined || !belongs(next);
    });
  },
};

function closesFence(line, opening) {
  const mark = FENCE.exec(opening)[1];
  return line.trim().startsWith(mark) && !line.trim().replaceAll(mark[0], '');
}

/** The first index after `at` for which `ends` holds, or the end. */
function endOf(lines, at, ends) {
  let i = at + 1;
  while (i < lines.length && !ends(i)) i += 1;
  return i;
}

function indent(line) {
  return line.length - line.trimStart().length;
}

/** Whether an item continues the list of `first`: it has the same kind of mark, and lies no deeper. */
function isNext(item, first) {
  return item !== null && item[1].length <= first[1].length + 1 && (item[3] === undefined) === (first[3] === undefined);
}

/** The node of a block. */
function build(block, depth) {
  return depth < DEPTH ? BUILDERS[block.kind](block.lines, depth) : element('p', block.lines.join('\n'));
}

const BUILDERS = {
  code(lines) {
    const [language] = FENCE.exec(lines[0])[2].trim().split(' ');
    const isClosed = lines.length > 1 && closesFence(lines.at(-1), lines[0]);
    const pre = element('pre');
    // What is wider than the page is scrolled, by the keyboard as well.
    pre.tabIndex = 0;
    pre.dir = 'ltr';
    pre.setAttribute('role', 'region');
    pre.setAttribute('aria-label', language ? text('code-of', { language }) : text('code'));
    pre.append(element('code', lines.slice(1, isClosed ? -1 : undefined).join('\n')));
    return pre;
  },
  heading(lines) {
    const [, marks, text] = HEADING.exec(lines[0]);
    // The page's own headings come first.
    return inline(element(`h${Math.min(marks.length + 2, 6)}`), text.trim());
  },
  rule: () => element('hr'),
  quote(lines, depth) {
    const quote = element('blockquote');
    for (const block of split(lines.map((line) => line.replace(QUOTE, '')))) quote.append(build(block, depth + 1));
    return quote;
  },
  list(lines, depth) {
    const first = ITEM.exec(lines[0]);
    const list = element(first[3] === undefined ? 'ul' : 'ol');
    if (first[3] !== undefined) list.start = Number(first[3]);
    for (const item of items(lines, first)) {
      const entry = element('li');
      for (const block of split(item)) {
        if (block.kind === 'paragraph' && !entry.hasChildNodes()) inline(entry, block.lines.join('\n'));
        else entry.append(build(block, depth + 1));
      }
      list.append(entry);
    }
    return list;
  },
  table(lines) {
    const table = element('table');
    const row = (line, tag) => {
      const cells = line.trim().replace(/^\||\|$/g, '').split('|');
      const tr = element('tr');
      tr.append(...cells.map((cell) => inline(element(tag), cell.trim())));
      return tr;
    };
    const head = element('thead');
    head.append(row(lines[0], 'th'));
    const body = element('tbody');
    body.append(...lines.slice(2).map((line) => row(line, 'td')));
    table.append(head, body);
    const frame = element('div');
    frame.className = 'table';
    frame.tabIndex = 0;
    frame.setAttribute('role', 'region');
    frame.setAttribute('aria-label', text('table'));
    frame.append(table);
    return frame;
  },
  paragraph: (lines) => inline(element('p'), lines.join('\n')),
};

/** The lines of each item of a list, without their marks and indents. */
function items(lines, first) {
  const found = [];
  let inset = 0;
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (isNext(item, first)) {
      inset = item[0].length;
      found.push([line.slice(inset)]);
    } else {
      found.at(-1).push(line.slice(Math.min(indent(line), inset)));
    }
  }
  return found;
}

/** Marks of text and the elements they stand for, the longest first. */
const MARKS = [['***', 'strong', 'em'], ['**', 'strong'], ['__', 'strong'], ['~~', 's'], ['*', 'em'], ['_', 'em']];
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}]/u;

/** Appends `text` to `parent`, its marks as elements. */
function inline(parent, text) {
  let plain = '';
  const flush = () => {
    if (plain) parent.append(plain);
    plain = '';
  };
  for (let at = 0; at < text.length; ) {
    const marked = codeAt(text, at) ?? emphasisAt(text, at);
    if (marked) {
      flush();
      parent.append(marked.node);
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
  return { node: element('code', text.slice(at + mark.length, end)), end: end + mark.length };
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
    return { node: nodes[0], end: end + mark.length };
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

function element(tag, text = '') {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  return node;
}
