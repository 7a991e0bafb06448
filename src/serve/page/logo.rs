//! The owner's logo: a picture that browsers display without executing any part of it.

use std::sync::Arc;

/// An image file. Clones share its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageLogo {
    content_type: &'static str,
    bytes: Arc<[u8]>,
}

impl PageLogo {
    /// The largest logo that is accepted, in bytes.
    pub const MOST_BYTES: u64 = 1 << 20;

    /// Detects a file's type by its bytes. `None`: not SVG, PNG or WebP.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<PageLogo> {
        let content_type = match &bytes[..] {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => "image/png",
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
            text if is_svg(std::str::from_utf8(text).ok()?) => "image/svg+xml",
            _ => return None,
        };
        Some(PageLogo { content_type, bytes: bytes.into() })
    }

    /// The content type of the image file.
    pub fn content_type(&self) -> &'static str {
        self.content_type
    }

    /// The image file's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// True if a document's root is `svg`, after a declaration, comments and a document type.
fn is_svg(text: &str) -> bool {
    let mut rest = text.trim_start_matches('\u{feff}');
    loop {
        rest = rest.trim_start();
        let end = match rest {
            rest if rest.starts_with("<?") => "?>",
            rest if rest.starts_with("<!--") => "-->",
            rest if rest.starts_with("<!") => ">",
            rest => {
                return rest.strip_prefix("<svg").is_some_and(|rest| rest.starts_with([' ', '\t', '\r', '\n', '>']));
            }
        };
        let Some((_, behind)) = rest.split_once(end) else { return false };
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logo_is_known_by_its_bytes() {
        for (bytes, content_type) in [
            (&b"\x89PNG\r\n\x1a\n..."[..], Some("image/png")),
            (b"RIFF\x10\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"<svg xmlns='http://www.w3.org/2000/svg'/>", Some("image/svg+xml")),
            (b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- <a> -->\n<!DOCTYPE svg>\n<svg\n>", Some("image/svg+xml")),
            (b"<html><svg></svg></html>", None),
            (b"<svgs>", None),
            (b"<!-- <svg>", None),
            (b"<svg\xff>", None),
            (b"GIF89a", None),
            (b"RIFF\x10\0\0\0WAVEfmt ", None),
            (b"\x89PNG", None),
            (b"", None),
        ] {
            let logo = PageLogo::from_bytes(bytes.to_vec());
            assert_eq!(logo.as_ref().map(PageLogo::content_type), content_type, "{}", bytes.escape_ascii());
            assert!(logo.is_none_or(|logo| logo.bytes() == bytes));
        }
    }
}
