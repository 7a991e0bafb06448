#!/usr/bin/env python3
"""Writes templates.json: what transformers makes of chat templates, each of which tries one thing that templates do.

    python3 -m venv venv && venv/bin/pip install transformers==5.24.0 jinja2==3.1.6
    venv/bin/python tests/golden/chat/make.py

`text` is null where transformers raises an exception. A test of src/text/chat.rs compares each with Kiln's; those that
differ are listed in differences.txt.
"""

import json
import pathlib

from transformers.utils.chat_template_utils import render_jinja_template

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Grüße <b>\t'1'\n"},
    {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "ß"}]},
]
TOKENS = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
# Before each template.
PRELUDE = (
    "{%- set d = {'z': 1, 'a': [1, 2.5, none, true], 'items': {'k': 'v'}, 'é': '<\"&\\'>'} -%}"
    "{%- set l = ['b', 'A', 'c'] -%}{%- set n = [3, 1, 2] -%}{%- set s = 'Hello, wörld' -%}"
    "{%- set rows = [{'n': 'x', 'v': 2, 'o': {'p': 5}}, {'n': 'y', 'v': 1, 'o': {'p': 6}}, {'n': 'x', 'v': 3, 'o': {'p': 7}}] -%}"
)
# One in each line. A line without tags is an expression.
TEMPLATES = r"""
tools is none
tools is defined
documents is none and documents is defined
{% if tools %}yes{% else %}no{% endif %}
not tools
nothing is defined
tools is iterable
bos_token ~ eos_token ~ pad_token ~ unk_token
add_generation_prompt
messages[0]
messages[2].content
messages | length
d | tojson
d | tojson(indent=2)
d | tojson(indent=0)
d | tojson(true)
d | tojson(ensure_ascii=True)
d | tojson(ensure_ascii=False, indent=4)
d | tojson(separators=(',', ':'))
d | tojson(separators=(',', ':'), sort_keys=true, indent=1)
d | tojson(sort_keys=True)
d | tojson(False, 2)
d | tojson(colour=1)
'<script>&\'"\\ /\u2028é😀\x7f\x01\n\t' | tojson
'<script>&\'"\\ /\u2028é😀\x7f\x01\n\t' | tojson(ensure_ascii=true)
[] | tojson(indent=2)
{} | tojson(indent=2)
{'a': {}, 'b': []} | tojson(indent='\t')
{1: 2, none: 3, false: 4} | tojson
[1.0, 0.1, 1e100, 1e-7, 123456789012345678, -5] | tojson
nothing | tojson
messages | tojson
a{% generation %}b{% endgeneration %}c
a {%- generation -%} b {%- endgeneration -%} c
{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x is defined }}
{% for m in messages %}{% generation %}{{ loop.index }}{{ m.role }}{% endgeneration %}{% endfor %}
{% raw %}{% generation %}{% endraw %}
{{ '{% generation %}' }}{# {% generation %} #}
{% generation %}a
strftime_now('%Y') | length
strftime_now('%d %b %Y') | length
strftime_now('%%')
strftime_now()
raise_exception('no')
{% if false %}{{ raise_exception('no') }}{% endif %}yes
'{} and {}'.format(1, 'b')
'{0}{1}{0}'.format('a', 'b')
'{x}-{y}'.format(x=1, y=none)
'{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}'.format('a', 'b', 'c', 42, 3.14159)
'{}'.format([1, 'a'])
'{{}}'.format()
'{} {}'.format(1)
'%s and %s' % (1, 'b')
'%s' % 'a'
'%d|%5d|%-5d|%05d|%x' % (1, 2, 3, 4, 255)
'%.2f %5.1f' % (3.14159, 2.25)
'%(a)s %(b)d' % {'a': 'x', 'b': 2}
'%s' % [1, 2]
'%s %s' % 'a'
'100%%' % ()
'%s' | format('x')
'%s - %s' | format(none, true)
'%s %s' | format('x')
'%(a)s' | format(a=5)
'hello'.index('l')
'hello'.index('z')
'hello'.rindex('l')
'wörld'.find('r')
'wörld'.find('z')
'hello'.find('l', 3)
'hello'.rfind('l')
'hello'.count('l')
'hello'.count('')
'a,b,c'.split(',')
'a,b,c'.split(',', 1)
'a,b,c'.rsplit(',', 1)
' a  b '.split()
' a  b  c '.split(none, 1)
' a  b  c '.rsplit(none, 1)
'a,b'.split(sep=',')
'a,b,c'.split(',', maxsplit=1)
'ab'.split('')
'a=b=c'.partition('=')[2]
'a=b=c'.rpartition('=')[0]
'abc'.partition('=')[0]
'prefix-x'.removeprefix('prefix-')
'x.py'.removesuffix('.py')
'x.py'.removesuffix('.js')
'  a '.strip() ~ '|' ~ '  a '.lstrip() ~ '|' ~ '  a '.rstrip()
'xxaxx'.strip('x')
'abcba'.lstrip('ab')
'aXb'.lower() ~ 'aXb'.upper() ~ 'aXb'.swapcase()
'hello wörld'.title() ~ 'hELLO'.capitalize()
"they're".title()
'abc'.startswith('a') and 'abc'.endswith(('x', 'c'))
'abc'.startswith('b', 1)
'abc'.isalpha() ~ 'a1'.isalnum() ~ '12'.isdigit() ~ ''.isdigit() ~ ' '.isspace()
'abc'.islower() ~ 'a1'.islower() ~ '1'.islower() ~ 'AB'.isupper() ~ 'Ab'.istitle()
'7'.zfill(3) ~ '-7'.zfill(4) ~ 'a'.center(5, '*') ~ 'a'.ljust(3) ~ 'a'.rjust(3, '.')
'a\nb\r\nc'.splitlines()
'a\nb\n'.splitlines(true)
'-'.join(['a', 'b'])
'-'.join([1, 2])
'-'.join('abc')
'aaa'.replace('a', 'b', 2)
'aaa'.replace('', '-')
'a\tb'.expandtabs(4)
'abc'.nothing()
s.replace('l', 1)
d.get('z') ~ d.get('q') ~ d.get('q', 'default')
d.keys() | list
d.values() | list | length
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in d %}{{ k }}{% endfor %}
d['items'].k
{% for k, v in {'items': 5}.items() %}{{ k }}{{ v }}{% endfor %}
n.index(1)
n.index(9)
n.count(1)
n.append(4)
d.update({'x': 1})
'x' * 3
3 * 'x'
'x' * 0 ~ 'x' * -1
[1, 2] * 2
'x' * 'y'
'x' * 1.5
'x' + 1
'a' + 'b' ~ 1 ~ none ~ true
[1] + [2, 'c']
'a' 'b' "c"
'a' 'b' | upper
7 / 2 ~ '|' ~ 6 / 2 ~ '|' ~ 7 // 2 ~ '|' ~ -7 // 2 ~ '|' ~ 7 // -2
-7 % 5 ~ '|' ~ 7 % -5 ~ '|' ~ 7.5 % 2
2 ** 10 ~ '|' ~ 2 ** -1 ~ '|' ~ 2 ** 0.5
1 / 0
1 % 0
true + 1
none + 1
nothing + 1
1e16 ~ '|' ~ 1e15 ~ '|' ~ 0.0001 ~ '|' ~ 0.00001 ~ '|' ~ 1.5e300
1 == 1.0 and 1 == true and '1' != 1
1 < 2 < 3
1 < 2 > 3
'a' < 'b'
'a' < 1
none < 1
nothing < 1
[1, 2] < [1, 3]
2 in n and 'b' in l and 'z' in d and 'ell' in s
5 not in n
1 in 'abc'
'a' in none
'a' in nothing
'abc'[0] ~ 'abc'[-1] ~ 'abc'[1:] ~ 'abc'[:-1] ~ 'abc'[::-1] ~ 'abcdef'[4:0:-2]
n[0] ~ n[-1] ~ n[1:] ~ n[::-1] ~ n[5:]
n[5]
none[1:] is defined
nothing[1:]
messages[1:][0].role
messages.0.role
nothing.x
none.x is defined
d.nothing.x
['a', "b'c", 'd"e\'', '\n', 'é', '\x1b']
[none, true, 1.0, {'a': none}]
{'a': 1, 2: ['b']}
d
none ~ '' ~ nothing
'ß b'.title() ~ 'ß b' | title ~ 'ßa' | capitalize ~ 'ß'.casefold()
'%r %s' % ('a', ['b'])
'%d %i' % (2.75, -2.75)
'ab' % 5
'%%' % 'a'
'%s' % {'a': 'b'}
'{:5}|{:+}|{:05}'.format(2.5, 1.5, -3)
'{a}'.format(a=['b', 1.0])
'{0[0]}{1.x}'.format(['b'], {'x': 1}) is string
2 ** 5000.5
[] in {'a': 1}
'Hello World' | max ~ 'aXb' | min
rows | min(attribute='v')
rows | max(attribute='v')
[1, 'a'] | sort
[1, none] | min
[2, true, 0] | sort
['b', 'a', 'B'] | sort ~ ['b', 'a', 'B'] | sort(true, true)
rows | sort(attribute='n,v') | map(attribute='v') | list
none | first
none | sort
none | reverse
'a\r\n\r\nb\n' | indent(1)
5 | indent
5 | truncate
'x' is odd
2.0 is even ~ true is odd ~ 3.5 is odd
nothing | int
['b', 1.0] | safe
l | sort
l | sort(reverse=true)
l | sort(case_sensitive=true)
rows | sort(attribute='v') | map(attribute='v') | list
rows | map(attribute='n') | unique | join(',')
rows | map(attribute='o.p') | list
rows | map(attribute='q', default='-') | list
rows | selectattr('v', 'gt', 1) | map(attribute='n') | list
rows | selectattr('n', 'equalto', 'x') | list | length
rows | rejectattr('n', 'eq', 'x') | map(attribute='v') | list
rows | selectattr('q') | list
rows | sum(attribute='v')
rows | map(attribute='v') | sum
{% for g in rows | groupby('n') %}{{ g.grouper }}{{ g.list | length }};{% endfor %}
{% for k, v in {'b': 2, 'a': 1} | dictsort %}{{ k }}{{ v }}{% endfor %}
{% for k, v in {'b': 1, 'a': 2} | dictsort(by='value') %}{{ k }}{{ v }}{% endfor %}
{% for k, v in d | items %}{{ k }}{% endfor %}
n | select('odd') | list
n | reject('gt', 1) | list
n | map('string') | list
l | map('upper') | join('-')
l | join
l | join(d=', ')
rows | join('-', attribute='n')
[1, none, true, 'x'] | join('|')
n | sum
n | sum(start=10)
l | sum
[[1], [2]] | sum(start=[])
n | min ~ n | max
[] | max
n | first ~ n | last
[] | first is defined
'' | last is defined
n | reverse | list
'abc' | reverse
'abc' | list
d | list
nothing | list
none | list
n | length ~ 'é' | length ~ d | count
5 | length
nothing | length
[1, 2, 3, 4, 5] | batch(2) | list
[1, 2, 3, 4, 5] | batch(2, 'x') | list
[1, 2, 3, 4, 5] | slice(3) | list
[1, 2, 3, 4, 5] | slice(3, 'x') | list
'a\nb\n\nc' | indent
'a\nb\n\nc' | indent(2, true)
'a\nb\n\nc' | indent(width=2, blank=true)
'a\nb' | indent('> ', first=True)
'abc' | center(9) ~ '|'
'the quick brown fox' | truncate(10)
'the quick brown fox' | truncate(10, true, '..', 0)
'a b-c d' | wordcount
'hello big-world (x)' | title
'HELLO world' | capitalize
5 | upper ~ none | upper ~ nothing | upper
' a ' | trim ~ '|' ~ 'xax' | trim('x')
'\x1c\u00a0 a\x1f' | trim
'aaa' | replace('a', 'b', 2)
5 | replace(5, 'b')
'12' | int ~ 'x' | int ~ 'x' | int(7) ~ '0x1F' | int(base=16) ~ 3.9 | int ~ '3.9' | int
'1.5' | float ~ 'x' | float ~ 2 | float
2.5 | round ~ '|' ~ 3.5 | round ~ '|' ~ 2.675 | round(2) ~ '|' ~ 42 | round ~ '|' ~ 42.1 | round(0, 'ceil') ~ '|' ~ 42.55 | round(1, 'floor')
-5 | abs ~ 2.5 | abs
'x' | abs
nothing | default('d') ~ '' | default('d') ~ '' | default('d', true) ~ none | default('d') ~ nothing | d
5 | string ~ [1, 'a'] | string
'<b>"\'&' | e
'a' | nothing_of_this_name
'x' is string and 5 is number and true is boolean and 5 is integer and 5.0 is float and {} is mapping
'x' is iterable and 'x' is sequence and [] is sequence and {} is sequence and 5 is not iterable
true is number ~ true is integer ~ 5 is string ~ none is none ~ none is mapping
3 is odd ~ 4 is even ~ 9 is divisibleby 3 ~ 9 is divisibleby(2)
'a' is in 'abc' ~ 1 is in [1] ~ 5 is gt 3 ~ 5 is eq 5.0 ~ 5 is ne 5
'abc' is lower ~ 'ABC' is upper ~ 'aB' is lower
d.z is sameas 1 ~ none is sameas none
raise_exception is callable ~ 5 is callable
true is true ~ false is false ~ 1 is true
1 is nothing_of_this_name
{% for i in n %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}
{% for i in n %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in n if i > 1 %}{{ loop.index }}{{ loop.last }}{{ i }};{% else %}none{% endfor %}
{% for i in [] %}{% else %}none{% endfor %}
{% for i in none %}{% endfor %}
{% for i in nothing %}{% else %}none{% endfor %}
{% for c in 'aé' %}{{ c }},{% endfor %}
{% for a, b in [[1, 2], [3, 4]] %}{{ a }}{{ b }};{% endfor %}
{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}
{% for i in n %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{% endfor %}
{% set ns = namespace(x=1) %}{% for i in n %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}
{% set x = 1 %}{% for i in n %}{% set x = i %}{% endfor %}{{ x }}
{% set x %}a{{ 1 }}{% endset %}{{ x | upper }}
{% set a, b = 1, 2 %}{{ a + b }}
{% macro m(a, b='x', c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, c=2) }}{{ m(b=3, a=4) }}
{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}x{% endcall %}
{% filter upper %}a{{ 'b' }}{% endfilter %}
{% with a = 1 %}{{ a }}{% endwith %}{{ a is defined }}
range(3) | list ~ range(1, 4) | list ~ range(5, 0, -2) | list
range(3)[1]
dict(a=1, b='x')
{'a': 1, **d}
joiner(', ') is defined
{% set j = joiner() %}{% for i in n %}{{ j() }}{{ i }}{% endfor %}
'a' if true else 'b'
'a' if false
('a' if false) is defined
none or 'x'
'' or none
1 and 'x'
not 'x'
-5 | abs
--5
1_000 + 0x1f
'\u00e9\x41\n\101\q'
namespace(a=1).a ~ namespace({'b': 2}).b
(1, 2)[1]
{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] | trim + '\n\n' }}{% endif %}
{% do l.append('x') %}
  a
a{#- comment -#} b
{{ "a" -}} b
{% if true %}a{% endif %}
"""


def main():
    cases = []
    for line in TEMPLATES.strip("\n").split("\n"):
        source = line if "{%" in line or "{{ " in line or "{#" in line or line.strip() == "a" else "{{ " + line + " }}"
        try:
            template = PRELUDE + source
            (text,), _ = render_jinja_template([MESSAGES], chat_template=template, add_generation_prompt=True, **TOKENS)
        except Exception as e:
            print(f"{source}\n    raises {type(e).__name__}: {e}")
            text = None
        cases.append({"template": source, "text": text})
    lines = ",\n".join("    " + json.dumps(case, ensure_ascii=False) for case in cases)
    head = json.dumps({"messages": MESSAGES, "prelude": PRELUDE}, ensure_ascii=False)
    path = pathlib.Path(__file__).with_name("templates.json")
    path.write_text(f'{head[:-1]},\n"cases": [\n{lines}\n]}}\n', encoding="utf-8")
    print(f"{len(cases)} templates, {sum(case['text'] is None for case in cases)} of which raise")


main()
