//! Checksums of files as the hub has them: SHA-256, or Git's blob id.

use sha2::{Digest, Sha256};

/// A running checksum of a file's bytes.
#[derive(Clone)]
pub(super) enum FileSum {
    /// A SHA-256 of 64 hexadecimal digits.
    Sha256(Sha256),
    /// A Git blob's SHA-1 of 40 hexadecimal digits.
    #[cfg(feature = "pull")]
    Git(ring::digest::Context),
}

impl FileSum {
    /// A checksum of the same kind as `etag`, for a file of `bytes` bytes; `None` if `etag` is of an unknown kind.
    pub(super) fn like(etag: &str, bytes: u64) -> Option<FileSum> {
        match etag.len() {
            64 => Some(FileSum::Sha256(Sha256::new())),
            #[cfg(feature = "pull")]
            40 => {
                let mut context = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
                context.update(format!("blob {bytes}\0").as_bytes());
                Some(FileSum::Git(context))
            }
            _ => {
                let _ = bytes;
                None
            }
        }
    }

    /// Adds the next bytes of the file to the checksum.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            FileSum::Sha256(sum) => sum.update(bytes),
            #[cfg(feature = "pull")]
            FileSum::Git(sum) => sum.update(bytes),
        }
    }

    /// The checksum in hexadecimal digits.
    pub(super) fn digits(self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            FileSum::Sha256(sum) => hex(&sum.finalize()),
            #[cfg(feature = "pull")]
            FileSum::Git(sum) => hex(sum.finish().as_ref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with the output of `sha256sum` and `git hash-object`.
    #[test]
    fn a_files_sum_is_as_the_hub_has_it() {
        let of = |etag: &str| {
            let mut sum = FileSum::like(etag, 6).unwrap();
            sum.update(b"hel");
            sum.update(b"lo\n");
            sum.digits()
        };
        let sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        assert_eq!(of(sha256), sha256);
        #[cfg(feature = "pull")]
        assert_eq!(of(&"0".repeat(40)), "ce013625030ba8dba906f756967f9e9ca394464a");
        assert!(FileSum::like("abc", 6).is_none());
    }
}
