// An answer's Markdown as DOM nodes. Its text reaches the page only as text nodes, so nothing in it becomes markup.
//
// Known are paragraphs, headings, lists with and without boxes to tick, quotes, fenced code, tables and rules.

import { element, inline } from './inline.js';
import { translate } from './owner.js';
import { copyButton } from './parts.js';

/** Quotes and lists within each other. What lies deeper is shown as it is written. */
const DEPTH = 8;

// No two repetitions in a row match the same character: a model may write thousands of blanks.
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6}) +(.*)$/;
const RULE = /^([-*_])( *\1){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|(\d{1,9})[.)])( +|$)/;
const TASK = /^\[([ xX])\] +/;
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
    const source = lines.slice(1, isClosed ? -1 : undefined).join('\n');
    const pre = scrolled(element('pre'), language ? 'code-of' : 'code', language ? { language } : {});
    pre.append(element('code', source));
    const frame = element('div');
    frame.className = 'code';
    frame.dir = 'ltr';
    if (language) frame.dataset.language = language;
    const copy = copyButton('copy-code', () => source);
    frame.append(...(copy ? [copy] : []), pre);
    return frame;
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
      const task = TASK.exec(item[0]);
      if (task) {
        entry.className = 'task';
        entry.append(box(task[1] !== ' '), ' ');
        item[0] = item[0].slice(task[0].length);
      }
      for (const block of split(item)) {
        if (block.kind === 'paragraph' && entry.childNodes.length === (task ? 2 : 0)) inline(entry, block.lines.join('\n'));
        else entry.append(build(block, depth + 1));
      }
      list.append(entry);
    }
    return list;
  },
  table(lines) {
    const sides = cellsOf(lines[1]).map(sideOf);
    const row = (line, tag) => {
      const cells = cellsOf(line);
      const tr = element('tr');
      tr.append(...sides.map((side, i) => {
        const cell = inline(element(tag), cells[i] ?? '');
        if (side) cell.className = side;
        return cell;
      }));
      return tr;
    };
    const [table, head, body] = ['table', 'thead', 'tbody'].map((tag) => element(tag));
    head.append(row(lines[0], 'th'));
    body.append(...lines.slice(2).map((line) => row(line, 'td')));
    table.append(head, body);
    const region = scrolled(element('div'), 'table');
    region.append(table);
    const frame = element('div');
    frame.className = 'table';
    frame.dataset.hint = 'is-wide';
    translate(frame);
    frame.append(region);
    widths.observe(region);
    widths.observe(table);
    return frame;
  },
  paragraph: (lines) => inline(element('p'), lines.join('\n')),
};

/** What is wider than the page is scrolled, by the keyboard as well. It is named by the text `label`. */
function scrolled(node, label, values = {}) {
  node.classList.add('scrolled');
  node.tabIndex = 0;
  node.setAttribute('role', 'region');
  Object.assign(node.dataset, { label }, values);
  translate(node);
  return node;
}

/** Tells tables that are wider than the page: they say so. */
const widths = new ResizeObserver((entries) => {
  for (const region of new Set(entries.map(({ target }) => target.closest('.scrolled')))) {
    region?.parentElement?.classList.toggle('overflowing', region.scrollWidth > region.clientWidth + 1);
  }
});

/** The cells of a line of a table. A bar with a stroke before it is text. */
function cellsOf(line) {
  const cells = line.trim().replace(/^\|/, '').split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll('\\|', '|'));
  return cells.length > 1 && cells.at(-1) === '' ? cells.slice(0, -1) : cells;
}

/** The side that a table's rule sets a column to: `left`, `right`, `center`, or none. */
function sideOf(rule) {
  const [atStart, atEnd] = [rule.startsWith(':'), rule.endsWith(':')];
  if (atStart && atEnd) return 'center';
  return atEnd ? 'right' : atStart ? 'left' : '';
}

/** The box of a task. What is copied has it as it was written. */
function box(isDone) {
  const node = element('span', isDone ? '[x]' : '[ ]');
  node.className = isDone ? 'box done' : 'box';
  node.setAttribute('role', 'img');
  node.dataset.label = isDone ? 'task-done' : 'task-open';
  translate(node);
  return node;
}

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
