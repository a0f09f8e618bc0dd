//! `compress` of a route: which answers are compressed, and how.

use serde_json::{Value as Json, json};

use crate::report::{Report, ValueProblem, quote};
use crate::scalar::number::ByteSize;
use crate::scalar::text::OnlyTrue;
use crate::yaml::collection::NonEmptyList;
use crate::yaml::decode::{Decode, Located, Scalar, SchemaDefinitions};
use crate::yaml::node::{YamlNode, YamlValue};
use crate::yaml::record::record;
use tollgate_spec::route::compression::{
    CODINGS, COMPRESSED_TYPES, CompressionRules, ContentCoding, MIN_SIZE, MediaRange,
};

record! {
    /// Which answers are compressed, and how.
    RawCompression {
        /// The content codings to use, the best first. Default: [zstd, br, gzip].
        optional codings: NonEmptyList<Located<ContentCoding>>,
        /// Content that is known to be shorter is sent as it is. Default: 1KiB.
        optional min_size: Located<ByteSize<0, { u64::MAX }>>,
        /// Types of content, such as application/json, text/* or application/*+json. Default:
        /// texts, JSON, XML and the like.
        optional types: NonEmptyList<Located<MediaRange>>,
    }
}

/// `true`, or how.
pub enum RawCompress {
    ByDefault,
    As(RawCompression),
}

impl RawCompress {
    /// The rules. `None`: a mistake was reported.
    pub fn build(&self, report: &mut Report) -> Option<CompressionRules> {
        let Self::As(raw) = self else {
            return Some(default_rules());
        };
        let codings = raw.codings.build(|list| {
            let mut codings = Vec::with_capacity(list.0.len());
            for at in &list.0 {
                if codings.contains(&at.value) {
                    let problem =
                        ValueProblem::new(format!("{} is here twice", quote(at.value.name())));
                    report.mistake(
                        &at.location,
                        problem.hint("list each coding once, the best first"),
                    );
                    return None;
                }
                codings.push(at.value);
            }
            Some(codings)
        });
        let min_size = raw.min_size.build(|at| Some(at.value.0));
        let types = raw.types.values();
        let default = default_rules();
        Some(CompressionRules {
            codings: codings?.unwrap_or(default.codings),
            min_size: min_size?.unwrap_or(default.min_size),
            types: types?.unwrap_or(default.types),
        })
    }
}

fn default_rules() -> CompressionRules {
    CompressionRules {
        codings: CODINGS.to_vec(),
        min_size: MIN_SIZE,
        types: COMPRESSED_TYPES
            .into_iter()
            .filter_map(MediaRange::parse)
            .collect(),
    }
}

impl Decode for RawCompress {
    fn decode(node: &YamlNode, report: &mut Report) -> Option<Self> {
        match &node.value {
            YamlValue::Map(_) => RawCompression::decode(node, report).map(Self::As),
            _ => Located::<OnlyTrue>::decode(node, report).map(|_| Self::ByDefault),
        }
    }

    fn schema(definitions: &mut SchemaDefinitions) -> Json {
        json!({ "anyOf": [OnlyTrue::schema(), RawCompression::schema(definitions)] })
    }
}

impl Scalar for ContentCoding {
    const WHAT: &'static str = "a content coding";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        for coding in CODINGS {
            if coding.name() == text {
                return Ok(coding);
            }
        }
        let problem = ValueProblem::new(format!(
            "{} is not a content coding of the gateway",
            quote(text)
        ));
        Err(problem.hint("the codings are zstd, br and gzip"))
    }

    fn schema() -> Json {
        json!({ "enum": CODINGS.map(ContentCoding::name) })
    }
}

impl Scalar for MediaRange {
    const WHAT: &'static str = "a type of content";

    fn read(text: &str) -> Result<Self, ValueProblem> {
        Self::parse(text).ok_or_else(|| {
            ValueProblem::new(format!("{} is not a type of content", quote(text)))
                .hint("write application/json, text/* or application/*+json")
        })
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}
