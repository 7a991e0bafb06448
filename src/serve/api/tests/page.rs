//! The page's files and its owner's settings.

use super::*;
use crate::serve::page::{PageAccent, PageLogo, PageSettings, PageText};

const SVG: &[u8] = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>";

/// The page's settings for a browser with this language.
fn told(served: &TestServer, wanted: &str) -> Value {
    let head = format!("GET /page.json HTTP/1.0\r\nHost: localhost\r\nAccept-Language: {wanted}\r\n\r\n");
    TextResponse::read(served.send(head.as_bytes())).json()
}

#[test]
fn the_page_is_told_what_its_owner_wants_in_the_browsers_language() {
    let served = TestServer::new(ServerSettings::default());
    let usual = told(&served, "de-AT, en;q=0.5");
    assert_eq!(
        (&usual["title"], &usual["has_logo"], &usual["has_keyboard"]),
        (&json!(null), &json!(false), &json!(false))
    );
    assert_eq!((&usual["texts"]["language"], &usual["texts"]["copy"]), (&json!("de"), &json!("Kopieren")));
    assert_eq!(served.get("/page.json").json()["texts"]["language"], "en");
    // Each language's file can be fetched as an example.
    let answer = served.get("/languages/fr.toml");
    assert!(answer.status == 200 && answer.body.starts_with("language = \"fr\""), "{answer:?}");
    for path in ["/languages/it.toml", "/languages/", "/logo", "/logo-dark"] {
        assert_eq!(served.get(path).status, 404, "{path}");
    }
    assert_eq!((&usual["languages"], &usual["accent"]), (&json!(["en", "de", "es", "fr"]), &json!(null)));
    let french = crate::serve::page::PageLanguage::of_tag("fr").unwrap();
    served.service.page.set(PageSettings {
        titles: vec![PageText::new("Museum")],
        languages: vec![french],
        accent: Some(PageAccent::new("#005f87", Some("#6cb6dd")).unwrap()),
        logo: PageLogo::from_bytes(SVG.to_vec()),
        has_keyboard: true,
        ..PageSettings::default()
    });
    let own = told(&served, "de");
    assert_eq!((&own["title"], &own["texts"]["language"]), (&json!("Museum"), &json!("fr")));
    assert_eq!(
        (&own["has_logo"], &own["has_dark_logo"], &own["has_keyboard"]),
        (&json!(true), &json!(false), &json!(true))
    );
    assert_eq!((&own["languages"], &own["accent"]), (&json!(["fr"]), &json!({"light": "#005f87", "dark": "#6cb6dd"})));
}

#[test]
fn the_owners_words_come_in_the_language_of_the_page() {
    let texts = |given: &[&str]| given.iter().map(|text| PageText::parse(text, &[]).unwrap()).collect::<Vec<_>>();
    let page = PageSettings {
        titles: texts(&["Museum", "es=Museo"]),
        welcomes: texts(&["de=Guten Tag"]),
        questions: texts(&["Open?", "de=Offen?", "de=Wo?"]),
        ..PageSettings::default()
    };
    let served = TestServer::new(ServerSettings { page, ..ServerSettings::default() });
    for (wanted, title, welcome, questions) in [
        ("de", "Museum", json!("Guten Tag"), json!(["Offen?", "Wo?"])),
        ("es-MX", "Museo", json!(null), json!(["Open?"])),
        ("it", "Museum", json!(null), json!(["Open?"])),
    ] {
        let told = told(&served, wanted);
        assert_eq!(
            (&told["title"], &told["welcome"], &told["questions"]),
            (&json!(title), &welcome, &questions),
            "{wanted}"
        );
    }
}

#[test]
fn a_logo_is_sent_as_what_it_is_and_runs_nothing() {
    let page = PageSettings {
        logo: PageLogo::from_bytes(SVG.to_vec()),
        dark_logo: PageLogo::from_bytes(b"RIFF\x04\0\0\0WEBP".to_vec()),
        ..PageSettings::default()
    };
    let served = TestServer::new(ServerSettings { page, ..ServerSettings::default() });
    for (path, content_type) in [("/logo", "image/svg+xml"), ("/logo-dark", "image/webp")] {
        let answer = served.get(path);
        assert_eq!((answer.status, answer.header("Content-Type")), (200, Some(content_type)));
        let policy = answer.header("Content-Security-Policy").unwrap();
        assert!(policy.starts_with("default-src 'none';") && policy.ends_with("; sandbox"), "{policy}");
        assert!(!policy.contains("script-src"), "{policy}");
        assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"));
    }
    assert_eq!(served.get("/logo").body.as_bytes(), SVG);
}
