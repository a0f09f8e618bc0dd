//! Values that are one of a few words, each word spelt in one place.

use crate::config::report::{ValueProblem, quote};

/// Gives an enum its words in the file.
macro_rules! words {
    ($($ty:ident: $what:literal { $($word:literal => $variant:ident),* $(,)? })*) => { $(
        impl $crate::config::yaml::decode::Scalar for $ty {
            const WHAT: &'static str = $what;

            fn read(text: &str) -> Result<Self, $crate::config::report::ValueProblem> {
                match text {
                    $( $word => Ok(Self::$variant), )*
                    _ => Err($crate::config::yaml::words::unknown(text, &[$($word),*])),
                }
            }

            fn schema() -> serde_json::Value {
                $crate::config::yaml::schema::choice(&[$($word),*])
            }
        }
    )* };
}
pub(crate) use words;

/// A word that is none of `words`.
pub fn unknown(text: &str, words: &[&str]) -> ValueProblem {
    let problem = ValueProblem::new(format!(
        "{} is not one of {}",
        quote(text),
        words.join(", ")
    ));
    problem.suggest(
        text,
        words.iter().copied(),
        format!("write {}", words.join(" or ")),
    )
}
