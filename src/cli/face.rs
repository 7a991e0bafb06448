//! Error messages on the command line, with settings named by their arguments.

use super::usage::command_of;
use crate::Error;
use crate::error::{Setting, Text};
use clap::Command;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The argument for a setting, if the current command has it.
fn name(setting: Setting) -> Option<String> {
    let name = argument(setting);
    let option = name.trim_start_matches('`').strip_prefix("--").and_then(|name| name.split([' ', '`']).next());
    option.is_none_or(is_option).then_some(name)
}

/// True if the process's command has an option `--word`, or if the arguments name no command.
fn is_option(word: &str) -> bool {
    static COMMAND: LazyLock<Option<Command>> = LazyLock::new(|| command_of(&std::env::args_os().collect::<Vec<_>>()));
    COMMAND.as_ref().is_none_or(|command| command.get_arguments().any(|a| a.get_long() == Some(word)))
}

fn argument(setting: Setting) -> String {
    let name = match setting {
        Setting::Context => "--ctx",
        Setting::Batch => "--batch",
        Setting::KvTokens => "--kv-tokens",
        Setting::Chunk => "--chunk",
        Setting::Cpu => "`--device cpu`",
        Setting::Vulkan => "`--device vulkan`",
        Setting::VulkanIndex => "`--device vulkan:N`",
        Setting::Weights(format) => return format!("--weights {format}"),
        Setting::Draft => "--draft",
        Setting::Ram => "--ram",
        Setting::Machine => "--machine",
        Setting::Device => "--device",
        Setting::Wake => "--wake",
        Setting::NoNpu => "--npu off",
        Setting::KernelNpu => "--npu-api kernel",
        Setting::Temperature => "--temp",
        Setting::TopP => "--top-p",
        Setting::MinP => "--min-p",
        Setting::RepeatPenalty => "--repeat-penalty",
        Setting::Stop => "--stop",
        Setting::NoBos => "--no-bos",
        Setting::Tokens => "`kiln run --tokens` and `kiln logits`",
        Setting::Repetitions => "--reps",
        Setting::Prefill => "--prefill",
        Setting::Rows => "--rows",
        Setting::Decode => "--decode",
        Setting::Depth => "--depth",
        Setting::Layer => "--layer",
        Setting::Kernels => "--kernels",
        Setting::Timeline => "--timeline",
        Setting::ApiKeys => "--api-key-file",
        Setting::OpenToAll => "--allow-all",
    };
    name.into()
}

/// The text of a cause or remedy, with settings as arguments.
pub(super) fn words(text: &Text) -> String {
    without_numbers(&text.render(&name))
}

/// An error as one line: `cause; remedy`.
pub fn line(e: &Error) -> String {
    without_numbers(&e.render(&name))
}

/// Removes the numbers that the standard library adds to the system's messages: `Permission denied (os error 13)`.
fn without_numbers(message: &str) -> String {
    let mut parts = message.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |message, rest| match rest.split_once(')') {
        Some((number, rest)) if number.bytes().all(|b| b.is_ascii_digit()) => message + rest,
        _ => message + " (os error " + rest,
    })
}

/// An error as a JSON object.
pub(super) fn object(e: &Error) -> Value {
    let (cause, remedy) = e.parts();
    json!({"error": {"message": words(cause), "remedy": words(remedy), "exit": e.exit_code()}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::bench::{BenchSettings, profile::check_layer};
    use crate::engine::Options;
    use crate::model::presets;
    use crate::text::{SamplerConfig, StopMatcher};

    #[test]
    fn the_systems_words_stand_without_their_numbers() {
        for (message, said) in [
            ("cannot read x: Permission denied (os error 13); check it", "cannot read x: Permission denied; check it"),
            ("(os error 2) a (os error 2)b (os error 11)", "(os error 2) ab"),
            ("a (os error x) b (os error 1", "a (os error x) b (os error 1"),
        ] {
            assert_eq!(without_numbers(message), said);
        }
    }

    #[test]
    fn errors_of_the_library_name_arguments_here_and_nothing_of_them_elsewhere() {
        let shape = presets::preset("gemma3-1b").unwrap();
        let sampler = |config: SamplerConfig| config.validate().unwrap_err();
        let extent = |options: Options| options.extent(&shape).unwrap_err();
        let bench = BenchSettings {
            prefill: vec![16],
            decode: 8,
            batch: vec![1],
            rows: vec![],
            beside: 0,
            drafts: vec![],
            depth: vec![32],
            repetitions: 1,
        };
        let device = Error::device("the GPU hangs", crate::error::text!("use ", Setting::Cpu));
        for (e, here) in [
            (
                sampler(SamplerConfig { temperature: -1.0, ..SamplerConfig::default() }),
                "the temperature (--temp) is -1; give 0 for the likeliest token, or a number above it",
            ),
            (
                sampler(SamplerConfig { min_p: 2.0, ..SamplerConfig::default() }),
                "min-p (--min-p) is 2; give a number from 0, which keeps all tokens, to 1",
            ),
            (StopMatcher::new([""]).err().unwrap(), "a stop string is empty; leave --stop away, or give it some text"),
            (
                extent(Options { context: Some(0), ..Options::default() }),
                "a context of 0 tokens is not in 1..=32768, the model's range; choose another --ctx",
            ),
            (
                extent(Options { chunk: Some(0), ..Options::default() }),
                "a prefill chunk of 0 rows; choose a --chunk of 1 or more",
            ),
            (check_layer(7, 7).unwrap_err(), "there is no layer 7: the model has 7; choose a --layer of 0 to 6"),
            (
                BenchSettings { repetitions: 0, ..bench.clone() }.check(&shape, None).unwrap_err(),
                "a count of repetitions of 0 measures nothing; choose --reps of 1 or more",
            ),
            (
                bench.check(&shape, Some(47)).unwrap_err(),
                "the deepest line needs 48 positions, and --ctx has 47; choose a smaller --depth, --prefill or --decode, \
                 or a larger --ctx",
            ),
            (device, "the GPU hangs; use `--device cpu`"),
        ] {
            assert_eq!(line(&e), here);
            assert!(!e.to_string().contains("--"), "{e}");
        }
    }
}
