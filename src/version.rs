//! The build: its version, the commit that it was built from, and its features.

use std::fmt;
use std::sync::LazyLock;

/// The version of Kiln, as in Cargo.toml.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of the build, with `+changes` where files differed from it. `None` for a debug build, or one of sources
/// outside of git.
pub const COMMIT: Option<&str> = option_env!("KILN_COMMIT");

/// The crate's features that are built in, and `xrt`, the bridge to libxrt.
pub fn features() -> impl Iterator<Item = &'static str> {
    env!("KILN_FEATURES").split_whitespace().chain(cfg!(kiln_xrt).then_some("xrt"))
}

/// All of the above in a few words.
pub fn describe() -> &'static str {
    static DESCRIBED: LazyLock<String> = LazyLock::new(|| Described(VERSION, COMMIT, features().collect()).to_string());
    &DESCRIBED
}

struct Described(&'static str, Option<&'static str>, Vec<&'static str>);

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Described(version, commit, features) = self;
        let commit = match commit {
            Some(commit) => format!("commit {commit}"),
            None if cfg!(debug_assertions) => "a debug build".to_owned(),
            None => "of an unknown commit".to_owned(),
        };
        write!(f, "{version} ({commit}; {})", features.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_one_line_of_words() {
        let known = Described("0.1.0", Some("0123456789ab"), vec!["cli", "serve"]);
        assert_eq!(known.to_string(), "0.1.0 (commit 0123456789ab; cli, serve)");
        assert!(Described("0.1.0", None, vec![]).to_string().starts_with("0.1.0 ("));
        assert!(describe().starts_with(VERSION) && !describe().contains('\n'));
        assert!(!cfg!(feature = "serve") || features().any(|feature| feature == "serve"));
    }
}
