//! Values that are one of a few words, each word spelt in one place: [`words!`] makes reading,
//! messages and schema of one table.

use super::decode::Scalar;
use crate::report::{ValueProblem, quote};

/// A choice of words. Declared with [`words!`].
pub trait Words: Scalar {
    const WORDS: &'static [&'static str];
}

/// Gives an enum its words in the file.
macro_rules! words {
    ($($ty:ident: $what:literal { $($word:literal => $variant:ident),* $(,)? })*) => { $(
        impl $crate::yaml::decode::Scalar for $ty {
            const WHAT: &'static str = $what;

            fn read(text: &str) -> Result<Self, $crate::report::ValueProblem> {
                match text {
                    $( $word => Ok(Self::$variant), )*
                    _ => Err($crate::yaml::words::unknown(
                        text,
                        <Self as $crate::yaml::words::Words>::WORDS,
                    )),
                }
            }

            fn schema() -> serde_json::Value {
                $crate::yaml::schema::choice(
                    <Self as $crate::yaml::words::Words>::WORDS,
                )
            }
        }

        impl $crate::yaml::words::Words for $ty {
            const WORDS: &'static [&'static str] = &[$($word),*];
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
