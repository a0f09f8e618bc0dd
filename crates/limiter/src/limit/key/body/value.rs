//! The one spelling of a value: upstreams cut off white space, and take several spellings of
//! Unicode for one text.

use std::borrow::Cow;

use icu_normalizer::properties::CanonicalCombiningClassMap;
use icu_normalizer::{ComposingNormalizer, DecomposingNormalizer};

/// The value as it counts: without white space around it and without characters that nobody sees,
/// in the one spelling that Unicode gives its characters (NFKC). `None`: it has control characters,
/// where some readers end a text.
pub fn canonical(value: &str) -> Option<Cow<'_, str>> {
    let bare = value.trim();
    if bare.is_ascii() {
        return (!bare.chars().any(char::is_control)).then_some(Cow::Borrowed(bare));
    }
    let seen: String = bare.chars().filter(|c| !is_invisible(*c)).collect();
    let normal = ComposingNormalizer::new_nfkc()
        .normalize(&seen)
        .into_owned();
    // Some characters become a space and a mark.
    let bare = normal.trim();
    (!bare.chars().any(char::is_control)).then(|| Cow::Owned(bare.to_owned()))
}

/// The value without its case and its accents: most databases that ignore the one ignore the other.
pub fn without_case(value: &str) -> String {
    if value.is_ascii() {
        return value.to_ascii_lowercase();
    }
    let classes = CanonicalCombiningClassMap::new();
    let letters = DecomposingNormalizer::new_nfkd()
        .normalize(value)
        .into_owned();
    let bases = letters.chars().filter(|c| classes.get_u8(*c) == 0);
    // By upper case first: sharp s and final sigma have one form there.
    bases
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect()
}

/// Whether a character has no glyph and no width (Default_Ignorable_Code_Point). Readers trim it,
/// ignore it, or keep it.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}
