//! The text of an error: words, and the settings that would change the outcome.
//!
//! A setting's name depends on how Kiln is used: `--ctx` on the command line, `context` in the options of the engine.
//! An error therefore holds settings as values, and the code that shows it names them.

use std::fmt;

/// Declares the settings. A line has a setting and its name in plain words: a noun without an article, or a phrase that
/// takes none.
macro_rules! settings {
    ($($(#[$doc:meta])* $setting:ident $(($value:ident: $kind:ty))? = $plain:expr;)*) => {
        /// A setting that causes and remedies can name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Setting {
            $($(#[$doc])* $setting $(($kind))?,)*
        }

        impl Setting {
            /// The name of the setting in plain words.
            fn plain(self) -> String {
                match self { $(Setting::$setting $(($value))? => $plain.into(),)* }
            }
        }
    };
}

settings! {
    /// The most tokens of a sequence.
    Context = "context";
    /// The number of sequences decoded together.
    Batch = "batch";
    /// The tokens that the KV cache has room for.
    KvTokens = "KV cache";
    /// Rows of a prompt that one pass takes.
    Chunk = "chunk";
    /// Running on the CPU instead of a GPU.
    Cpu = "the CPU";
    /// The choice of the best Vulkan device.
    Vulkan = "Vulkan";
    /// The choice of a Vulkan device by its index.
    VulkanIndex = "its Vulkan index";
    /// The format of the weights on the device, by name: `int8`, `int4`, `bf16`.
    Weights(format: &'static str) = format!("the weight format {format}");
    /// The model that drafts tokens.
    Draft = "the draft model";
    /// The RAM of a machine that is planned for by name.
    Ram = "size of RAM";
    /// The machine that a plan is made for.
    Machine = "machine";
    /// The device that the model runs on.
    Device = "device";
    /// The permission to wake GPUs that are suspended.
    Wake = "leave to wake it";
    /// The choice to leave the NPU unused.
    NoNpu = "no NPU";
    /// Using the NPU through the kernel's driver instead of libxrt.
    KernelNpu = "the kernel's NPU interface";
    /// The sampler's temperature.
    Temperature = "temperature";
    /// The cumulative probability of the tokens to sample from.
    TopP = "top-p";
    /// The least probability of a sampled token, relative to the largest.
    MinP = "min-p";
    /// The penalty for repeated tokens.
    RepeatPenalty = "repetition penalty";
    /// A text that ends the reply.
    Stop = "stop string";
    /// The choice to leave out `<bos>`.
    NoBos = "no <bos>";
    /// The choice to give token ids instead of text.
    Tokens = "token ids";
    /// The number of times that the bench measures a line.
    Repetitions = "number of repetitions";
    /// The number of tokens in the bench's prefill.
    Prefill = "prefill";
    /// The number of rows in a measured pass.
    Rows = "number of rows";
    /// The number of tokens that the bench decodes.
    Decode = "number of decoded tokens";
    /// Tokens in the context before the bench measures.
    Depth = "depth";
    /// The choice to measure a single layer in the bench.
    Layer = "single layer";
    /// The choice to measure every kernel in the bench.
    Kernels = "kernels' times";
    /// The choice to measure a timeline of the pass.
    Timeline = "timeline";
    /// A file of API keys, one of which every request must have.
    ApiKeys = "file of API keys";
    /// The permission to answer other machines without keys.
    OpenToAll = "openness to all";
}

impl Setting {
    /// "a context" in plain words. A setting's name takes no article.
    pub fn a(self) -> Text {
        Text(vec![MessagePart::Setting { article: "a ", setting: self }])
    }

    /// "the context" in plain words. A setting's name takes no article.
    pub fn the(self) -> Text {
        Text(vec![MessagePart::Setting { article: "the ", setting: self }])
    }

    /// A setting's name in brackets, after words that describe the setting. Empty in plain words.
    pub fn aside(self) -> Text {
        Text(vec![MessagePart::Aside(self)])
    }
}

/// A function from a setting to its name in a front end; `None` for plain words.
pub type SettingNames<'a> = &'a dyn Fn(Setting) -> Option<String>;

/// A cause or a remedy: words and settings. [`fmt::Display`] gives it in plain words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text(Vec<MessagePart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum MessagePart {
    Words(String),
    Setting { article: &'static str, setting: Setting },
    Aside(Setting),
    AnyOf(Vec<Text>),
}

impl Text {
    /// "a, b or c". Where some of the settings have names, those without one are left out.
    pub fn any_of(alternatives: impl IntoIterator<Item = Text>) -> Text {
        Text(vec![MessagePart::AnyOf(alternatives.into_iter().collect())])
    }

    /// Appends `more` to the text.
    pub fn and(mut self, more: impl Into<Text>) -> Text {
        for part in more.into().0 {
            match (self.0.last_mut(), part) {
                (Some(MessagePart::Words(words)), MessagePart::Words(more)) => words.push_str(&more),
                (_, part) => self.0.push(part),
            }
        }
        self
    }

    /// Applies `change` to the words. Settings stay.
    pub fn map_words(mut self, change: impl Fn(&str) -> String) -> Text {
        self.change_words(&change);
        self
    }

    fn change_words(&mut self, change: &dyn Fn(&str) -> String) {
        for part in &mut self.0 {
            match part {
                MessagePart::Words(words) => *words = change(words),
                MessagePart::AnyOf(alternatives) => alternatives.iter_mut().for_each(|text| text.change_words(change)),
                MessagePart::Setting { .. } | MessagePart::Aside(_) => {}
            }
        }
    }

    /// True if the text names the setting `wanted`.
    pub fn names(&self, wanted: Setting) -> bool {
        self.settings().contains(&wanted)
    }

    fn settings(&self) -> Vec<Setting> {
        let of = |part: &MessagePart| match part {
            MessagePart::Words(_) => Vec::new(),
            MessagePart::Setting { setting, .. } | MessagePart::Aside(setting) => vec![*setting],
            MessagePart::AnyOf(alternatives) => alternatives.iter().flat_map(Text::settings).collect(),
        };
        self.0.iter().flat_map(of).collect()
    }

    /// The text with each setting named as `names` says.
    pub fn render(&self, names: SettingNames<'_>) -> String {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                MessagePart::Words(words) => out += words,
                MessagePart::Setting { article, setting } => {
                    out += &names(*setting).unwrap_or_else(|| format!("{article}{}", setting.plain()));
                }
                MessagePart::Aside(setting) => {
                    out += &names(*setting).map_or(String::new(), |name| format!(" ({name})"))
                }
                MessagePart::AnyOf(alternatives) => out += &either(alternatives, names),
            }
        }
        out
    }
}

/// The alternatives as "a, b or c". Alternatives whose settings have no name are left out if others have one.
fn either(alternatives: &[Text], names: SettingNames<'_>) -> String {
    let is_named = |setting: &Setting| names(*setting).is_some();
    let has_names = alternatives.iter().flat_map(Text::settings).any(|s| is_named(&s));
    let kept = alternatives.iter().filter(|text| !has_names || text.settings().iter().all(is_named));
    let mut kept: Vec<String> = kept.map(|text| text.render(names)).collect();
    let last = kept.pop().unwrap_or_default();
    if kept.is_empty() { last } else { format!("{} or {last}", kept.join(", ")) }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.render(&|_| None))
    }
}

impl From<&str> for Text {
    fn from(words: &str) -> Text {
        words.to_owned().into()
    }
}

impl From<String> for Text {
    fn from(words: String) -> Text {
        Text(vec![MessagePart::Words(words)])
    }
}

impl From<Setting> for Text {
    fn from(setting: Setting) -> Text {
        Text(vec![MessagePart::Setting { article: "", setting }])
    }
}

/// Joins words and settings into a [`Text`]: `text!("use a smaller model or ", Setting::Context)`.
macro_rules! text {
    ($($part:expr),+ $(,)?) => { $crate::error::Text::default()$(.and($part))+ };
}
pub(crate) use text;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_face_names_settings_and_plain_words_do_without() {
        let text = text!(
            "use ",
            Setting::Cpu,
            ", a smaller ",
            Setting::Context,
            " or ",
            Setting::Batch.the(),
            format!("{}", 1)
        )
        .and(Setting::Stop.aside());
        let names = |setting| match setting {
            Setting::Context => Some("`ctx`".into()),
            Setting::Batch => Some("`batch`".into()),
            Setting::Stop => Some("`stop`".into()),
            _ => None,
        };
        assert_eq!(text.to_string(), "use the CPU, a smaller context or the batch1");
        assert_eq!(text.render(&names), "use the CPU, a smaller `ctx` or `batch`1 (`stop`)");
        assert!(text.names(Setting::Context) && text.names(Setting::Stop) && !text.names(Setting::Depth));
        assert_eq!(text!("a", "b", String::from("c")), Text::from("abc"));
    }

    #[test]
    fn alternatives_that_a_face_lacks_are_left_out() {
        let now = text!(Setting::Context, " (now 3)");
        let text = text!("a smaller ", Text::any_of([now, Setting::Batch.into(), "model".into()]), ".");
        let naming = |known: Setting| move |s: Setting| (s == known).then(|| "`it`".to_owned());
        assert_eq!(text.to_string(), "a smaller context (now 3), batch or model.");
        assert_eq!(text.render(&naming(Setting::Context)), "a smaller `it` (now 3) or model.");
        assert_eq!(text.render(&naming(Setting::Batch)), "a smaller `it` or model.");
        assert_eq!(text.render(&naming(Setting::Stop)), text.to_string());
        assert!(text.names(Setting::Batch) && !text.names(Setting::Stop));
        let loud = text.map_words(|words| words.to_uppercase());
        assert_eq!(loud.to_string(), "A SMALLER context (NOW 3), batch or MODEL.");
        assert_eq!(Text::any_of([]).to_string(), "");
    }
}
