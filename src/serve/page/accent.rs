//! The owner's accent colour, for the page's light background, and a shade of it for the dark one. Text in this colour,
//! and on it, has the contrast required by WCAG 2.2 (1.4.3).

use crate::display::quote;
use crate::{Error, Result};
use std::fmt;

/// The least contrast between text and its background, as WCAG requires for normal text.
const LEAST: f64 = 4.5;
/// The backgrounds in the page's style that are closest to the accent: the darkest of the light ones, and the lightest
/// of the dark ones.
const LIGHT_GROUND: Color = Color([0xfa, 0xf8, 0xf5]);
const DARK_GROUND: Color = Color([0x23, 0x1f, 0x1c]);

/// A colour in sRGB: red, green, blue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Color([u8; 3]);

/// The colour of the page's buttons, marks and rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageAccent {
    light: Color,
    dark: Color,
}

impl PageAccent {
    /// A colour for the light background, and one for the dark; without that, a lighter shade of the first.
    ///
    /// # Errors
    /// Input: a value is not a colour, or has too little contrast to its background.
    pub fn new(light: &str, dark: Option<&str>) -> Result<PageAccent> {
        let light = Color::parse(light)?;
        light.check(LIGHT_GROUND, "light")?;
        let dark = match dark {
            Some(dark) => {
                let dark = Color::parse(dark)?;
                dark.check(DARK_GROUND, "dark")?;
                dark
            }
            None => light.readable_on(DARK_GROUND),
        };
        Ok(PageAccent { light, dark })
    }

    /// The colours for the light and the dark background, as `#rrggbb`.
    pub(super) fn codes(&self) -> [String; 2] {
        [self.light, self.dark].map(|color| color.to_string())
    }
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Color([red, green, blue]) = self;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

impl Color {
    /// Parses `#rrggbb` or `#rgb`.
    fn parse(text: &str) -> Result<Color> {
        let digits = text.strip_prefix('#').unwrap_or_default();
        let digits: Option<Vec<u8>> = digits.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
        match digits.as_deref() {
            Some([r1, r0, g1, g0, b1, b0]) => Ok(Color([r1 * 16 + r0, g1 * 16 + g0, b1 * 16 + b0])),
            Some([r, g, b]) => Ok(Color([r * 17, g * 17, b * 17])),
            _ => {
                let cause = format!("`{}` is no colour of the page", quote(text));
                Err(Error::input(cause, "write its red, green and blue in hexadecimal, such as #005f87"))
            }
        }
    }

    fn check(self, ground: Color, name: &str) -> Result<()> {
        let contrast = self.contrast(ground);
        if contrast >= LEAST {
            return Ok(());
        }
        // Rounded down, so that 4.499 is not shown as 4.5.
        let shown = (contrast * 100.0).floor() / 100.0;
        let cause = format!("{self} has a contrast of {shown} to the page's {name} ground, and letters need {LEAST}");
        Err(Error::input(cause, format!("give {}, its nearest shade that has it", self.readable_on(ground))))
    }

    /// The closest shade with enough contrast to a background, mixed with as little black or white as possible.
    fn readable_on(self, ground: Color) -> Color {
        let end = if ground.luminance() > 0.5 { 0 } else { 255 };
        let mixed = |share: u32| {
            let mix = |part: u8| ((u32::from(part) * (255 - share) + end * share + 127) / 255) as u8;
            Color(self.0.map(mix))
        };
        let found = (0..=255).map(mixed).find(|color| color.contrast(ground) >= LEAST);
        found.unwrap_or_else(|| mixed(255))
    }

    /// WCAG's contrast ratio, from 1 to 21.
    fn contrast(self, other: Color) -> f64 {
        let (a, b) = (self.luminance(), other.luminance());
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// WCAG's relative luminance, from 0 to 1.
    fn luminance(self) -> f64 {
        let [red, green, blue] = self.0.map(|part| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page's own style.
    const STYLE: &str = include_str!("page.css");

    #[test]
    fn contrast_is_wcags() {
        let color = |text| Color::parse(text).unwrap();
        // From WebAIM's contrast checker.
        for (a, b, contrast) in [("#000", "#fff", 21.0), ("#777777", "#fff", 4.47), ("#0000ff", "#fff", 8.59)] {
            assert!((color(a).contrast(color(b)) - contrast).abs() < 0.01, "{a} {b}: {}", color(a).contrast(color(b)));
        }
    }

    #[test]
    fn the_grounds_are_those_of_the_style_and_its_own_accents_can_be_read_on_them() {
        let (light, dark) = STYLE.split_once("prefers-color-scheme: dark").unwrap();
        assert!(
            light.contains(&format!("--ground: {LIGHT_GROUND};"))
                && dark.contains(&format!("--raised: {DARK_GROUND};"))
        );
        let own = |style: &str, name: &str| {
            let (_, value) = style.split_once(&format!("--accent: var({name}, ")).unwrap();
            value.split_once(')').unwrap().0.to_owned()
        };
        PageAccent::new(&own(light, "--owner-accent"), Some(&own(dark, "--owner-accent-dark"))).unwrap();
    }

    #[test]
    fn an_accent_that_cannot_be_read_is_refused_with_a_shade_that_can() {
        for (light, dark, said) in [
            (
                "#ffcc00",
                None,
                "#ffcc00 has a contrast of 1.42 to the page's light ground, and letters need 4.5; give #",
            ),
            ("#005f87", Some("#005f87"), "#005f87 has a contrast of 2.32 to the page's dark ground"),
            ("red", None, "`red` is no colour of the page; write"),
            ("#12345", None, "is no colour"),
            ("#12345g", None, "is no colour"),
            ("005f87", None, "is no colour"),
            ("#005f87", Some(""), "`` is no colour"),
        ] {
            let e = PageAccent::new(light, dark).unwrap_err();
            assert!(e.exit_code() == 2 && e.to_string().contains(said), "{e}");
            if let Some((_, shade)) = e.to_string().split_once("; give #") {
                let shade = format!("#{}", &shade[..6]);
                let taken =
                    if dark.is_some() { PageAccent::new(light, Some(&shade)) } else { PageAccent::new(&shade, None) };
                assert!(taken.is_ok(), "{shade}");
            }
        }
    }

    #[test]
    fn the_dark_grounds_accent_is_a_shade_of_the_light_ones() {
        for light in ["#005f87", "#000", "#a8431d", "#00008b", "#7a0019"] {
            let accent = PageAccent::new(light, None).unwrap();
            assert!(accent.dark.contrast(DARK_GROUND) >= LEAST && accent.light == Color::parse(light).unwrap());
        }
        // A second colour with enough contrast is taken unchanged.
        assert_eq!(PageAccent::new("#005f87", Some("#6cb6dd")).unwrap().codes(), ["#005f87", "#6cb6dd"]);
    }
}
