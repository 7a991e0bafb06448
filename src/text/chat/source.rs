//! Prepares a template's source before it is compiled.
//!
//! - Its size and the depth of its expressions and `elif`s are limited, because the parser is recursive.
//! - A product's first factor gets a filter that does nothing, so that the compiler does not compute a product of
//!   constants, which may be large, before the run, which is charged.
//! - `{% generation %}` of transformers becomes `{% with %}`, and adjacent literal texts become one expression.

use minijinja::machinery::{self, Token, WhitespaceConfig};

use super::bounds::Excess;

/// Bytes of a template. Gemma 3's has 1.5 KB.
pub(super) const MAX_SOURCE: usize = 256 << 10;
/// Tokens in one tag, which bounds the depth of an expression.
pub(super) const MAX_TAG: usize = 512;
/// `elif`s, each of which is parsed inside the one before it.
pub(super) const MAX_ELIFS: usize = 128;

/// The filter after a factor. The compiled program does not have it.
pub(super) const FACTOR: &str = "factor";

/// Whitespace as transformers configures Jinja: blocks are trimmed, and no newline remains at the end.
pub(super) fn blanks() -> WhitespaceConfig {
    WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true }
}

/// Prepares a source for compilation.
///
/// # Errors
/// The source is too large or too deep.
pub(super) fn prepare(source: &str) -> Result<String, Excess> {
    if source.len() > MAX_SOURCE {
        return Err(Excess::Source);
    }
    // Jinja turns every line end into a line feed, also within string literals.
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    // Errors of the lexer are left for the parser to report.
    let tokens: Vec<_> =
        machinery::tokenize(&source, false, Default::default(), blanks()).map_while(Result::ok).collect();
    check_depth(tokens.iter().map(|(token, _)| token))?;
    let token = |i: usize| tokens.get(i).map(|(token, _)| token);
    let before = |i: usize| i.checked_sub(1).and_then(token);
    let mut prepared = String::with_capacity(source.len() * 2);
    let mut copied = 0;
    for (i, (this, span)) in tokens.iter().enumerate() {
        let (start, end) = (span.start_offset as usize, span.end_offset as usize);
        let mut put = |until: usize, text: &str| {
            prepared.push_str(source.get(copied..until).unwrap_or_default());
            prepared.push_str(text);
            copied = until;
        };
        match (before(i), this) {
            (Some(Token::BlockStart), Token::Ident(name @ ("generation" | "endgeneration"))) => {
                put(start, if *name == "generation" { "with" } else { "endwith" });
                copied = end;
            }
            // Not of a call's arguments, as in `f(*x)`.
            (Some(left), Token::Mul) if !matches!(left, Token::ParenOpen | Token::Comma) => put(start, "|factor "),
            _ if is_text(Some(this)) && is_text(token(i + 1)) => {
                put(start, if is_text(before(i)) { "" } else { "(" });
                put(end, "~");
            }
            _ if is_text(Some(this)) && is_text(before(i)) => put(end, ")"),
            _ => {}
        }
    }
    prepared.push_str(source.get(copied..).unwrap_or_default());
    Ok(prepared)
}

fn is_text(token: Option<&Token>) -> bool {
    matches!(token, Some(Token::Str(_) | Token::String(_)))
}

/// Refuses a template whose expressions may be too deep for the recursive parser's stack. Pairs of constant texts are
/// not counted, because they do not nest: TranslateGemma's template has a table of 500 languages.
fn check_depth<'t, 's: 't>(all: impl Iterator<Item = &'t Token<'s>>) -> Result<(), Excess> {
    let (mut tokens, mut elifs) = (0, 0);
    let mut before = &Token::BlockEnd;
    // Tokens of the current pair `"text": "text",` so far.
    let mut pair = 0;
    for token in all {
        tokens += 1;
        pair = match (token, pair) {
            (Token::Str(_) | Token::String(_), 0 | 2) | (Token::Colon, 1) => pair + 1,
            (Token::Str(_) | Token::String(_), _) => 1,
            (Token::Comma, 3) => {
                tokens -= 4;
                0
            }
            _ => 0,
        };
        match (before, token) {
            (_, Token::VariableStart | Token::BlockStart) => tokens = 0,
            (Token::BlockStart, Token::Ident("elif")) => elifs += 1,
            _ => {}
        }
        if tokens > MAX_TAG {
            return Err(Excess::Tag);
        }
        if elifs > MAX_ELIFS {
            return Err(Excess::Elifs);
        }
        before = token;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_transformers_becomes_one_of_minijinja_and_nothing_else_changes() {
        for (source, prepared) in [
            ("{% generation %}a{% endgeneration %}", "{% with %}a{% endwith %}"),
            ("a\n{%- generation -%}\n b{%-endgeneration-%}", "a\n{%- with -%}\n b{%-endwith-%}"),
            ("{% raw %}{% generation %}{% endraw %}", "{% raw %}{% generation %}{% endraw %}"),
            ("{# {% generation %} #}{{ generation }}", "{# {% generation %} #}{{ generation }}"),
            ("{{ '{% generation %}' }}", "{{ '{% generation %}' }}"),
            (
                "{% if generation %}{% set generation = x %}{% endif %}",
                "{% if generation %}{% set generation = x %}{% endif %}",
            ),
            ("generation {% x", "generation {% x"),
        ] {
            assert_eq!(prepare(source).as_deref(), Ok(prepared), "{source}");
        }
    }

    #[test]
    fn each_first_factor_is_marked_and_neighbouring_texts_are_one() {
        for (source, prepared) in [
            ("'x' * 3", "'x' |factor * 3"),
            ("f(a, *b) + [1]*n*2", "f(a, *b) + [1]|factor *n|factor *2"),
            ("-2 ** 3 * x.y", "-2 ** 3 |factor * x.y"),
            ("'a' \"b\" 'c'|upper", "('a'~ \"b\"~ 'c')|upper"),
        ] {
            assert_eq!(prepare(&format!("{{{{ {source} }}}}")), Ok(format!("{{{{ {prepared} }}}}")), "{source}");
        }
    }
}
