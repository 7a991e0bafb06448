use super::*;

fn run(source: &str) -> Result<String, Error> {
    let content = "some text ".repeat(100);
    ChargedTemplate::compile(&source::prepare(source)?)?
        .run(minijinja::context! { content, items => [1, 2, 3] }, |_| {})
}

fn excess(source: &str) -> Option<Excess> {
    Excess::of(&run(source).unwrap_err())
}

/// Each of these used to take gigabytes, minutes or the whole stack.
#[test]
fn a_template_that_grows_ends_with_the_bound_that_it_exceeds() {
    let loops = |body: &str| {
        format!("{{% set ns = namespace(x=content, l=[content]) %}}{{% for i in range(1000) %}}{body}{{% endfor %}}")
    };
    for (body, bound) in [
        ("{% set ns.x = ns.x ~ ns.x %}", Excess::Value),
        ("{% set ns.x = ns.x + ns.x %}", Excess::Value),
        ("{% set ns.x = ns.x.replace('t', ns.x) %}", Excess::Value),
        ("{% set ns.x = ns.x | replace('', ns.x) %}", Excess::Value),
        ("{% set ns.x = ns.x.join([ns.x, ns.x]) %}", Excess::Value),
        ("{% set ns.x = [ns.x, ns.x] | join(ns.x) %}", Excess::Value),
        ("{% set ns.x = ns.x | tojson | tojson %}", Excess::Value),
        ("{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}", Excess::Value),
        ("{% set ns.x %}{% filter upper %}{{ ns.x }}ß{{ ns.x }}{% endfilter %}{% endset %}", Excess::Value),
        ("{% set ns.l = ns.l + ns.l %}", Excess::Value),
        ("{% set ns.l = [ns.l, ns.l] %}", Excess::Value),
        ("{% set ns.l = {'a': ns.l, 'b': ns.l} %}", Excess::Value),
        ("{% set ns.l = [ns.l] %}", Excess::Depth),
        (
            "{% set ns.x = ns.x[:-1] %}{% for j in range(1000) %}{% set ns.l = ns.l[0:] %}{% endfor %}{% set ns.x = ns.x ~ ns.x %}",
            Excess::Value,
        ),
        ("{% set ns.x = content %}{{ ns.x * 100000 }}", Excess::Value),
        ("{{ ns.l * 100000 }}", Excess::Value),
        ("{{ 'x' * 100000000 }}", Excess::Value),
        ("{% set ns.x = ns %}", Excess::Holder),
        ("{% set ns.x = [ns] %}", Excess::Holder),
        ("{% macro m() %}{{ ns.x }}{% endmacro %}{% set ns.x = m %}", Excess::Holder),
        ("{% set ns.x = '%s%s' % (ns.x, ns.x) %}", Excess::Value),
        ("{% set ns.x = '{0}{0}'.format(ns.x) %}", Excess::Value),
        ("{{ '%1000000000d' % 1 }}", Excess::Value),
        ("{{ '{:>1000000000}'.format('x') }}", Excess::Value),
        ("{{ 'x' | indent(1000000000, true) }}", Excess::Value),
        ("{{ items | batch(1000000000, 0) }}", Excess::Value),
        ("{{ items | slice(1000000000) }}", Excess::Value),
        ("{{ ns.l | tojson(indent=1000000000) }}", Excess::Indent),
        ("{{ content }}{% for j in range(1000) %}{{ content }}{% endfor %}", Excess::Made),
        ("{% for j in range(1000) %}{% set x = content | list %}{% endfor %}", Excess::Made),
        (
            "{% for j in range(1000) %}{% set x = items | map('replace', '', content) | list %}{% endfor %}",
            Excess::Made,
        ),
    ] {
        assert_eq!(excess(&loops(body)), Some(bound), "{body}");
    }
    let raw = format!("{{% set x %}}{{% for i in range(100000) %}}{}{{% endfor %}}{{% endset %}}", "raw ".repeat(1000));
    assert_eq!(excess(&raw), Some(Excess::Made));
    // Twice the size with each call.
    let calls = "{% macro m(x) %}{{ m(x ~ x) }}{% endmacro %}{{ m(content) }}";
    assert_eq!(excess(calls), Some(Excess::Value));
    // Each step scans 12 MB without making a value.
    let big = format!("{{% set x = range(99999) | join('{}') %}}", "a".repeat(120));
    let step = "{% if x.find('aaaaaaab') > 0 %}{% endif %}";
    let steps = format!("{big}{{% for i in range(99999) %}}{step}{{% endfor %}}");
    assert_eq!(excess(&steps), Some(Excess::Time));
    assert_eq!(excess(&format!("{big}{{% if x | trim(x) %}}{{% endif %}}")), Some(Excess::Made));
    assert_eq!(excess(&format!("{big}{{% if x.strip(x) %}}{{% endif %}}")), Some(Excess::Made));
    // The compiler would fold these constants.
    for constant in [
        "'x' * 100000000",
        "100000000 * ('x')",
        "5 in [0] * 1000000000000",
        "5 in (1, 2) * 1000000000000",
        "5 in [[]] * (([] == []) + ([] == [])) ** (([] == []) * 30)",
    ] {
        assert_eq!(excess(&format!("{{{{ {constant} }}}}")), Some(Excess::Value), "{constant}");
    }
    // MiniJinja itself refuses a text of 4 GB.
    assert!(run("{{ 'x' * (true + true) ** ((true + true) ** ((true + true) ** (true + true) + true)) }}").is_err());
}

#[test]
fn a_run_ends_at_its_time_whatever_it_makes() {
    let late = || Budget { end: Duration::ZERO, ..Budget::new() };
    assert_eq!(late().spend(4 << 10), Err(Excess::Time));
    // Steps that make no value check the clock now and then.
    let budget = late();
    assert_eq!((0..64).find_map(|_| budget.spend(0).err()), Some(Excess::Time));
}

#[test]
fn a_template_of_any_depth_is_refused_and_never_overflows_the_stack() {
    let deep = |part: &str| part.repeat(50_000);
    for (source, bound) in [
        (format!("{{{{ {}1 }}}}", deep("not ")), Excess::Tag),
        (format!("{{{{ {}1 }}}}", deep("-")), Excess::Tag),
        (format!("{{{{ content{} }}}}", deep("|e")), Excess::Tag),
        (format!("{{{{ content{} }}}}", deep(".a")), Excess::Tag),
        (format!("{{{{ 1{} }}}}", deep("+1")), Excess::Tag),
        (format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(10_000)), Excess::Elifs),
        (deep("some text"), Excess::Source),
    ] {
        assert_eq!(excess(&source), Some(bound), "{}", &source[..20]);
    }
    // Just within the limits, and cases that MiniJinja limits itself.
    assert_eq!(run(&format!("{{{{ {}1 }}}}", "-".repeat(510))).unwrap(), "1");
    for source in [
        format!("{{{{ {}1{} }}}}", "(".repeat(250), ")".repeat(250)),
        format!("{}{}", "{% if 1 %}".repeat(1000), "{% endif %}".repeat(1000)),
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".into(),
        "{% block a %}{{ self.a() }}{% endblock %}".into(),
    ] {
        assert_eq!(excess(&source), None);
    }
}

#[test]
fn what_templates_do_works_as_without_bounds() {
    for (source, text) in [
        (
            "{% for i in items[1:] %}{{ loop.index }}{{ i * 2 }}{% if not loop.last %}, {% endif %}{% else %}none{% endfor %}",
            "14, 26",
        ),
        ("{% for i in items recursive %}{{ i }}{% if i == 3 %}{{ loop([4, 5]) }}{% endif %}{% endfor %}", "12345"),
        (
            "{% macro m(a, b='x') %}[{{ a }}{{ b }}]{{ caller() if caller }}{% endmacro %}{{ m(1) }}{% call m(2, b='y') %}c{% endcall %}",
            "[1x][2y]c",
        ),
        ("{% set ns = namespace(n=0) %}{% for i in items %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "6"),
        ("{% set x %}a{{ 1 }}b{% endset %}{{ x ~ x | upper }}{{ x if 1 < 2 < 3 else '' }}", "a1bA1Ba1b"),
        (
            "{{ ([1] + [2, 3])[1:] | join('-') }}{{ {'a': [1, 'x']} | tojson }}{{ 2 in items }}{{ 'a' is in 'cat' }}",
            r#"2-3{"a": [1, "x"]}TrueTrue"#,
        ),
        ("{{ {'a': 1} | tojson(indent=4) }}", "{\n    \"a\": 1\n}"),
        // An argument is written once, and a number in the text is not a width.
        ("{{ ('%s %s %s' % (content * 999, 'y', content * 999)) | length }}", "1998003"),
        (
            "{{ 'Since 20241231235959: {}'.format(1) }}{{ '20241231235959 %3d' % 1 }}",
            "Since 20241231235959: 120241231235959   1",
        ),
        ("{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{% for a, b in [[1, 2]] %}{{ b }}{% endfor %}", "32"),
        (
            "{{ 'a,b'.split(',')[-1] }}{{ 'x'.strip('x') or 'none' }}{{ {'k': 5}.get('k') }}{% for k, v in {'k': 5}.items() %}{{ k }}{{ v }}{% endfor %}",
            "bnone5k5",
        ),
        (
            "{% for i in items %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}{% for i in items %}{% break %}{% endfor %}",
            "13",
        ),
        ("{% autoescape true %}<b>{{ '<' }}{% endautoescape %}{% raw %}{{ x }}{% endraw %}", "<b>&lt;{{ x }}"),
        ("a\n  {%- if 1 %}\nb\n{% endif %}\n", "ab\n"),
        (
            "{{ items | map('string') | list }}{{ items | select('gt', 1) | first }}{{ 7 // 2 }}{{ -7 % 5 }}{{ 2 ** 3 }}",
            "['1', '2', '3']2338",
        ),
    ] {
        assert_eq!(run(source).map_err(|e| format!("{e:?}")).as_deref(), Ok(text), "{source}");
    }
}
