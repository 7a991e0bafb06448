//! Puts exact numbers into a grammar: llguidance's schemas keep bounds as f64 and would round them.
//!
//! A schema has a placeholder text instead of such a number, as the constant of a separate definition, so that a lexeme
//! stands for it alone. Before the grammar becomes a parser, the lexeme is replaced by the number's regular expression.

use llguidance::derivre::{JsonQuoteOptions, RegexAst};
use llguidance::earley::lexerspec::LexerSpec;

use super::source::{refusal, said};
use crate::{Error, Result};

/// The prefix of all placeholder texts.
pub(super) const MARK: &str = "kiln exact integer ";

/// Characters of the longest lexeme that is searched for placeholders.
const LONGEST: usize = 1 << 20;

/// A placeholder text and the regular expression of the numbers it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NumberPattern {
    pub text: String,
    pub regex: String,
}

/// Replaces the placeholders in a grammar's lexemes by `numbers`.
///
/// # Errors
/// Input: llguidance has merged a placeholder with other parts of the schema.
pub(super) fn put(lexemes: &mut LexerSpec, numbers: &[NumberPattern]) -> Result<()> {
    if numbers.is_empty() {
        return Ok(());
    }
    let words = |spec: &LexerSpec, at: usize| {
        let lexeme = &spec.lexemes[at];
        let text = lexeme.to_string(LONGEST, Some(spec.regex_builder.exprset()));
        // The text begins with the lexeme's name, which differs for each lexeme.
        text.splitn(3, ' ').nth(2).unwrap_or_default().to_owned()
    };
    for at in 0..lexemes.lexemes.len() {
        if !words(lexemes, at).contains(MARK) {
            continue;
        }
        let mut replaced = false;
        for number in numbers {
            // Built at the same index, so that the texts can be compared.
            let mut scratch = lexemes.clone();
            scratch.lexemes.truncate(at);
            scratch.current_class = lexemes.lexemes[at].class();
            let options = JsonQuoteOptions { allowed_escapes: "nrbtf\\\"u".into(), raw_mode: false };
            let text = RegexAst::JsonQuote(Box::new(RegexAst::Literal(number.text.clone())), options);
            let text = scratch.regex_builder.mk(&text).map_err(|e| refusal(&said(&e)))?;
            scratch
                .add_greedy_lexeme(String::new(), RegexAst::ExprRef(text), false, None, usize::MAX)
                .map_err(|e| refusal(&said(&e)))?;
            if scratch.lexemes.len() != at + 1 || words(&scratch, at) != words(lexemes, at) {
                continue;
            }
            scratch.lexemes.truncate(at);
            let regex = RegexAst::Regex(number.regex.clone());
            scratch.add_greedy_lexeme(String::new(), regex, false, None, usize::MAX).map_err(|e| refusal(&said(&e)))?;
            if scratch.lexemes.len() == at + 1 {
                lexemes.regex_builder = scratch.regex_builder;
                lexemes.lexemes[at] = scratch.lexemes.remove(at);
                replaced = true;
            }
            break;
        }
        if !replaced {
            return Err(Error::input(
                "the JSON schema joins an integer beyond 2^53 with other keywords, which is not supported",
                "write the integer's bounds, `enum` or `const` in one place, beside `type` alone",
            ));
        }
    }
    Ok(())
}
