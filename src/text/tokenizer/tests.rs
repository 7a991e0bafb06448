use super::super::limits::LONGEST;
use super::super::testing::{Random, small_crate_tokenizer, small_tokenizer};
use super::*;
use serde_json::json;

fn edited(edit: impl FnOnce(&mut serde_json::Value)) -> Result<Tokenizer> {
    let bytes = include_bytes!("../../../tests/golden/tokenizer/tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_slice(bytes).unwrap();
    edit(&mut json);
    Tokenizer::from_bytes(json.to_string().as_bytes())
}

#[test]
fn bos_is_there_exactly_when_asked_for() {
    let tokenizer = small_tokenizer();
    assert_eq!(tokenizer.encode("", true).unwrap(), [2]);
    assert!(tokenizer.encode("", false).unwrap().is_empty());
    assert_eq!(tokenizer.encode("H", true).unwrap(), [2, 94]);
    assert_eq!(tokenizer.encode("<bos>H", true).unwrap(), [2, 2, 94]);
    assert_eq!((tokenizer.eos(), tokenizer.end_of_turn()), (Some(1), Some(11)));
    assert_eq!(tokenizer.stop_ids(), [1, 11]);
}

/// The cache of earlier texts does not change ids.
#[test]
fn texts_that_begin_alike_have_the_ids_of_the_whole() {
    let (tokenizer, reference, mut random) = (small_tokenizer(), small_crate_tokenizer(), Random(0x7265_6365));
    let words = ["the ", "he", "llo", " ", "  ", "\n", "ß", "😀", "<bos>", "<start_of_turn>", "<", "Z", "▁"];
    let mut more =
        |count: u32| -> String { (0..count).map(|_| words[random.below(words.len() as u32) as usize]).collect() };
    let begin = more(4000);
    for i in 0..40 {
        let cut = begin.len() - 37 * i;
        let cut = (0..=cut).rev().find(|&at| begin.is_char_boundary(at)).unwrap();
        let text = format!("{}{}", &begin[..cut], more(30 * (i as u32 % 3)));
        let whole = reference.encode_fast(&text[..], false).unwrap();
        assert_eq!(tokenizer.encode(&text, false).unwrap(), whole.get_ids(), "text {i}");
        let fresh = small_tokenizer().encode_verbatim(&text).unwrap();
        assert!(tokenizer.encode_verbatim(&text).unwrap() == fresh, "text {i}");
    }
}

/// Encoding a megabyte at once used to take 350 MB, and text without a place to cut was refused beyond 4 MiB.
#[test]
fn long_text_is_encoded_in_windows_with_the_ids_of_the_whole() {
    let (tokenizer, reference) = (small_tokenizer(), small_crate_tokenizer());
    let words =
        ["the ", "he", "llo", " ", "  ", "\n", "\n\n", "ß", "é", "😀", "<bos>", "<start_of_turn>", "<", "Z", "9", "▁"];
    let mut random = Random(5);
    let mixed = |random: &mut Random| {
        let mut text = String::new();
        while text.len() < 4 * WINDOW {
            text += words[random.below(words.len() as u32) as usize];
        }
        text
    };
    let texts = [
        mixed(&mut random),
        mixed(&mut random),
        "a".repeat(3 * WINDOW + 1),
        "😀".repeat(WINDOW),
        "\n".repeat(2 * WINDOW),
    ];
    for text in &texts {
        let whole = reference.encode_fast(text.as_str(), false).unwrap().get_ids().to_vec();
        assert!(tokenizer.encode(text, false).unwrap() == whole, "{}", &text[..20]);
        // The same in pieces.
        let mut encoder = tokenizer.encoder(false).unwrap();
        let mut ids = Vec::new();
        let mut rest = text.as_str();
        while let Some(end) = (rest.len().min(50_000)..=rest.len()).find(|&at| at > 0 && rest.is_char_boundary(at)) {
            ids.extend(encoder.push(&rest[..end]).unwrap());
            rest = &rest[end..];
        }
        ids.extend(encoder.finish().unwrap());
        assert!(ids == whole, "{}", &text[..20]);
    }
}

#[test]
fn a_tokenizer_whose_text_cannot_be_cut_encodes_text_of_bounded_length() {
    let strips = edited(|json| json["added_tokens"][5]["lstrip"] = json!(true)).unwrap();
    assert_eq!(
        strips.encode(&"a ".repeat(WINDOW), false).unwrap(),
        small_tokenizer().encode(&"a ".repeat(WINDOW), false).unwrap()
    );
    let error = strips.encode(&"a".repeat(MAX_WHOLE + 1), false).map(|ids| ids.len()).unwrap_err();
    assert!(error.to_string().contains("the text has 4194305 bytes"), "{error}");
}

#[test]
fn the_longest_special_token_is_found_wherever_it_stands() {
    let long = "ab".repeat(LONGEST / 2);
    let tokenizer = edited(|json| json["added_tokens"][5]["content"] = json!(long)).unwrap();
    let id = tokenizer.token_id(&long).unwrap();
    let text = format!("{}{long}{}", "x".repeat(WINDOW - LONGEST / 2), "y".repeat(WINDOW));
    assert_eq!(tokenizer.encode(&text, false).unwrap().iter().filter(|&&found| found == id).count(), 1);
}

/// The first of these took an hour, and each takes unreasonable time or memory for its size.
#[test]
fn a_tokenizer_larger_than_any_gemmas_is_refused_before_it_is_made() {
    let refused = |what: &str, edit: &dyn Fn(&mut serde_json::Value)| {
        let line = edited(edit).unwrap_err().to_string();
        assert!(line.contains(what) && line.contains("make sense; use the tokenizer.json that came"), "{line}");
    };
    let equal = "x".repeat(100_000);
    refused("it has 100000 bytes in a token; at most 256", &|json| json["added_tokens"][5]["content"] = json!(equal));
    refused("it has 100000 bytes in a token; at most 256", &|json| json["model"]["vocab"][&equal] = json!(512));
    refused("it has 32769 added tokens; at most 32768", &|json| {
        let token = |i: usize| {
            json!({"id": 600 + i, "content": format!("<{i}>"), "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": false})
        };
        json["added_tokens"] = (0..32_769).map(token).collect();
    });
    refused("it has 67585 merges; at most 67584", &|json| json["model"]["merges"] = vec!["t h"; 67_585].into());
    let many = edited(|json| {
        json["model"]["vocab"] =
            (0..=1 << 20).map(|i| (format!("{i:x}"), json!(i))).collect::<serde_json::Map<_, _>>().into();
    });
    let line = many.unwrap_err().to_string();
    assert!(line.contains("the token 100000 has id 1048576; ids end below 1048576"), "{line}");
}

#[test]
fn a_texts_length_bounds_its_tokens() {
    let tokenizer = small_tokenizer();
    for text in ["Hello wörld, hello\n", "", "a", "▁▁▁", "<start_of_turn>", "       ", "😀"] {
        let (fewest, ids) = (tokenizer.fewest_tokens(text), tokenizer.encode(text, false).unwrap());
        assert!(fewest <= ids.len() && fewest >= text.len() / 64, "{fewest} of {}", ids.len());
    }
    // A token that strips blanks may stand for any number of bytes.
    let strips = edited(|json| json["added_tokens"][5]["lstrip"] = json!(true)).unwrap();
    assert_eq!(strips.fewest_tokens("hello"), 0);
}

/// `<bos>` was required for plain text only: rendered messages began with its characters.
#[test]
fn no_prompt_is_made_without_bos() {
    let without = edited(|json| {
        json["added_tokens"].as_array_mut().unwrap().retain(|token| token["content"] != "<bos>");
    })
    .unwrap();
    let rendered = Rendered { text: "<bos>H".into(), mark: None };
    for error in [without.encode("H", true).unwrap_err(), without.encode_rendered(&rendered).unwrap_err()] {
        assert!(error.to_string().contains("has no <bos> token"), "{error}");
    }
    assert_eq!(without.encode("H", false).unwrap(), [94]);
}

#[test]
fn truncation_and_padding_in_the_file_are_for_training() {
    let tokenizer = edited(|json| {
        json["truncation"] = json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
        json["padding"] = json!({"strategy": {"Fixed": 64}, "direction": "Left", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"});
    });
    let ids = small_tokenizer().encode("Hello wörld", true).unwrap();
    assert!(ids.len() > 2);
    assert_eq!(tokenizer.unwrap().encode("Hello wörld", true).unwrap(), ids);
}

#[test]
fn an_id_without_a_token_is_named_with_the_range() {
    let message = small_tokenizer().decode(&[94, 512], false).unwrap_err().to_string();
    assert!(message.contains("512") && message.contains("0 to 511"), "{message}");
}

#[test]
fn a_file_that_is_no_gemma_tokenizer_is_refused() {
    for bytes in [&b""[..], b"{}", b"[1,2]", b"\xff\xfe", br#"{"version":"1.0","model":{"type":"BPE"}}"#] {
        assert_eq!(Tokenizer::from_bytes(bytes).unwrap_err().exit_code(), 2);
    }
    let model = |key: &str, value| edited(|json| json["model"][key] = value).unwrap_err().to_string();
    assert!(model("type", json!("Unigram")).contains("not BPE"));
    assert!(model("byte_fallback", json!(false)).contains("byte_fallback"));
    assert!(model("dropout", json!(0.1)).contains("dropout"));
    // The tokenizers crate panics on this one.
    assert!(model("continuing_subword_prefix", json!("<0x41>")).contains("continuing_subword_prefix"));
    assert!(model("end_of_word_suffix", json!("</w>")).contains("end_of_word_suffix"));
    let error = edited(|json| json["decoder"] = json!({"type": "Fuse"})).unwrap_err();
    assert!(error.to_string().contains("decoder"), "{error}");
    let error = edited(|json| json["model"]["vocab"]["huge"] = json!(4_000_000_000_u32)).unwrap_err();
    assert!(error.to_string().contains("4000000000"), "{error}");
}

/// The last of the two ids used to count.
#[test]
fn a_token_that_is_there_twice_is_refused() {
    let text = include_str!("../../../tests/golden/tokenizer/tokenizer.json");
    let doubled = text.replacen("\"<pad>\": 0", "\"<pad>\": 0, \"<pad>\": 7", 1);
    assert_ne!(doubled, text);
    let error = Tokenizer::from_bytes(doubled.as_bytes()).unwrap_err();
    assert!(error.to_string().contains("tokenizer: <pad> is there twice at line"), "{error}");
}

#[test]
fn a_token_stands_for_its_bytes_and_a_special_one_for_none() {
    let t = small_tokenizer();
    let text = "Hé \n▁x\u{1f600}";
    let bytes: Vec<u8> = t.encode(text, false).unwrap().iter().flat_map(|&id| t.bytes_of(id).unwrap()).collect();
    // A decoder turns both into spaces.
    assert_eq!(String::from_utf8(bytes).unwrap(), text.replace('▁', " "));
    assert_eq!((t.bytes_of(t.bos().unwrap()), t.bytes_of(u32::MAX)), (None, None));
}

#[test]
fn a_directory_without_a_tokenizer_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let error = Tokenizer::open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("has no tokenizer.json;"), "{error}");
    std::fs::write(dir.path().join("tokenizer.model"), b"").unwrap();
    assert!(Tokenizer::open(dir.path()).unwrap_err().to_string().contains("tokenizer.model"));
    let error = Tokenizer::open(&dir.path().join("absent")).unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
}

#[test]
fn ids_are_parsed_or_the_bad_word_is_named() {
    assert_eq!(parse_ids("2,17, 5\n").unwrap(), [2, 17, 5]);
    assert!(parse_ids(" \n").unwrap().is_empty());
    for (text, word) in
        [("2,x7", "x7"), ("2,,5", "\"\""), ("4294967296", "4294967296"), ("-1", "-1"), ("+5", "+5"), ("1.5", "1.5")]
    {
        let message = parse_ids(text).unwrap_err().to_string();
        assert!(message.contains(word), "{text}: {message}");
    }
}

/// Environment variable for a child process, in which other tests' allocations do not count.
const CHILD: &str = "KILN_TEST_TOKENIZER_MEMORY";

/// Maps of strings used to take five times as much.
#[test]
fn a_tokenizer_takes_as_much_memory_as_its_lists() {
    use crate::model::checkpoint::gguf::{GgufVocabulary, TokenKind, VocabularyToken};
    if std::env::var_os(CHILD).is_none() {
        let own = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "text::tokenizer::tests::a_tokenizer_takes_as_much_memory_as_its_lists"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        return assert!(own.status.success(), "{}", String::from_utf8_lossy(&own.stdout));
    }
    let resident = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        4 * pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
    };
    let token = |text: String, kind| VocabularyToken { text, score: 0.0, kind };
    let special = ["<pad>", "<eos>", "<bos>", "<unk>"].map(|text| token(text.into(), TokenKind::Control));
    let mut tokens = special.to_vec();
    let mut last = vec![String::new()];
    for _ in 0..4 {
        let longer = |text: &String| ('a'..='t').map(move |c| format!("{text}{c}")).collect::<Vec<_>>();
        last = last.iter().flat_map(longer).collect();
        tokens.extend(last.iter().map(|text| token(text.clone(), TokenKind::Normal)));
    }
    let bytes = (0..=u8::MAX).map(|byte| token(format!("<0x{byte:02X}>"), TokenKind::Byte));
    tokens.extend(bytes);
    assert_eq!(tokens.len(), 4 + 20 + 400 + 8_000 + 160_000 + 256);
    // Loads everything that is loaded once.
    small_tokenizer().encode("a", true).unwrap();
    let before = resident();
    let tokenizer = Tokenizer::from_vocabulary(&GgufVocabulary { tokens, merges: None }).unwrap();
    crate::sys::memory::give_back_freed();
    let taken = resident().saturating_sub(before);
    assert!(taken < 20 << 10, "{taken} KiB");
    assert_eq!(tokenizer.decode(&tokenizer.encode("abcdtt", true).unwrap(), true).unwrap(), "abcdtt");
}
