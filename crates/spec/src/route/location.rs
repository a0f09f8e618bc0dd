//! Where a redirect sends its clients: a template that is a URL, or a path of the same host.
//!
//! Guarantees that a client is sent to a host that the operator wrote, or to the one that it asked,
//! whatever it puts into the variables.

use super::template::{Template, TemplatePiece, Variable};

/// Why a template is no safe location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocationProblem {
    /// The text begins with neither a scheme nor a path.
    Start,
    /// A variable in the host, other than the host itself.
    Host(Variable),
    /// A character that no URL has.
    Character(char),
}

/// Where in a location a piece begins.
enum LocationPart {
    Start,
    /// Behind `{scheme}`.
    Scheme,
    /// Behind the slashes, where no host has come yet.
    HostStart,
    Host,
    /// Behind the host.
    Rest,
}

/// Checks that the host of a location is not for its clients to say.
///
/// # Errors
/// When a client could choose it, or the text cannot be a URL.
pub fn check(to: &Template) -> Result<(), LocationProblem> {
    let mut part = LocationPart::Start;
    for piece in to.pieces() {
        part = match piece {
            TemplatePiece::Text(text) => check_text(part, text)?,
            TemplatePiece::Variable(variable) => check_variable(part, variable)?,
        };
    }
    // A scheme alone, or no more than the beginning of a URL.
    if matches!(
        part,
        LocationPart::Start | LocationPart::Scheme | LocationPart::HostStart
    ) {
        Err(LocationProblem::Start)
    } else {
        Ok(())
    }
}

fn check_text(part: LocationPart, text: &str) -> Result<LocationPart, LocationProblem> {
    if let Some(character) = text.chars().find(|character| !is_of_url(*character)) {
        return Err(LocationProblem::Character(character));
    }
    let host = match part {
        LocationPart::Rest => return Ok(part),
        LocationPart::Host if text.contains(['/', '?', '#']) => return Ok(LocationPart::Rest),
        LocationPart::Host => return Ok(part),
        LocationPart::HostStart => text,
        LocationPart::Scheme => text.strip_prefix("://").ok_or(LocationProblem::Start)?,
        // Two slashes would begin a host.
        LocationPart::Start if text.starts_with('/') && !text.starts_with("//") => {
            return Ok(LocationPart::Rest);
        }
        LocationPart::Start => ["https://", "http://"]
            .iter()
            .find_map(|scheme| {
                text.get(..scheme.len())?
                    .eq_ignore_ascii_case(scheme)
                    .then(|| &text[scheme.len()..])
            })
            .ok_or(LocationProblem::Start)?,
    };
    match host.find(['/', '?', '#']) {
        // Browsers take what follows the slashes for the host.
        Some(0) => Err(LocationProblem::Start),
        Some(_) => Ok(LocationPart::Rest),
        None if host.is_empty() => Ok(LocationPart::HostStart),
        None => Ok(LocationPart::Host),
    }
}

fn check_variable(
    part: LocationPart,
    variable: &Variable,
) -> Result<LocationPart, LocationProblem> {
    match (part, variable) {
        (LocationPart::Rest, _) => Ok(LocationPart::Rest),
        // Both begin with a slash.
        (LocationPart::Start | LocationPart::Host, Variable::Path | Variable::Uri) => {
            Ok(LocationPart::Rest)
        }
        (LocationPart::Start, Variable::Scheme) => Ok(LocationPart::Scheme),
        (LocationPart::HostStart | LocationPart::Host, Variable::Host) => Ok(LocationPart::Host),
        (LocationPart::HostStart, Variable::Path | Variable::Uri) => Err(LocationProblem::Start),
        (LocationPart::HostStart | LocationPart::Host, variable) => {
            Err(LocationProblem::Host(variable.clone()))
        }
        (LocationPart::Start | LocationPart::Scheme, _) => Err(LocationProblem::Start),
    }
}

/// RFC 3986 §2, without the backslash that browsers take for a slash.
fn is_of_url(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-._~:/?#[]@!$&'()*+,;=%".contains(character)
}

/// The location as it is sent: characters that no URL has are percent-encoded, and a path does not
/// begin with two slashes, which would make a host of what follows.
pub fn written(rendered: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let path = rendered.trim_start_matches('/');
    let mut location = String::with_capacity(rendered.len());
    if path.len() < rendered.len() {
        location.push('/');
    }
    for byte in path.bytes() {
        if is_of_url(char::from(byte)) {
            location.push(char::from(byte));
        } else {
            location.push('%');
            location
                .extend([byte >> 4, byte & 15].map(|digit| char::from(HEX[usize::from(digit)])));
        }
    }
    location
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(to: &str) -> Result<(), LocationProblem> {
        check(&Template::parse(to).unwrap())
    }

    #[test]
    fn the_host_is_that_of_the_operator_or_the_one_that_was_asked() {
        for good in [
            "https://new.example{uri}",
            "HTTPS://{host}/new?from={path}",
            "{scheme}://{host}{path}",
            "{scheme}://www.{host}:8443{uri}",
            "/{path.id}",
            "{path}/",
            "{uri}",
            "https://a.example?q={query}",
            "https://{host}",
        ] {
            assert_eq!(checked(good), Ok(()), "{good}");
        }
        for bad in [
            "{path.id}",
            "{header.x}",
            "//a.example/",
            "{query}",
            "javascript:{query}",
            "a",
            "{scheme}",
            "{host}/a",
            "https:///{path.id}",
            "{scheme}:///{query}",
            "http://?{query}",
            "https://{path}",
            "https://",
        ] {
            assert_eq!(checked(bad), Err(LocationProblem::Start), "{bad}");
        }
        for (bad, variable) in [
            (
                "https://{path.id}.example.com/",
                Variable::PathParam("id".into()),
            ),
            ("https://example.com{query}", Variable::Query),
            ("{scheme}://{client_ip}/", Variable::ClientIp),
        ] {
            assert_eq!(checked(bad), Err(LocationProblem::Host(variable)), "{bad}");
        }
        assert_eq!(
            checked("https://a.example/\\b"),
            Err(LocationProblem::Character('\\'))
        );
        assert_eq!(checked("/ä"), Err(LocationProblem::Character('ä')));
    }

    #[test]
    fn nothing_in_a_variable_leaves_the_host() {
        for (rendered, expected) in [
            ("//evil.example/", "/evil.example/"),
            ("/\\evil.example", "/%5Cevil.example"),
            ("///\\/evil", "/%5C/evil"),
            ("https://a.example//b", "https://a.example//b"),
            ("/a?b=c d\"\t<é>", "/a?b=c%20d%22%09%3C%C3%A9%3E"),
            ("/a%2Fb", "/a%2Fb"),
        ] {
            assert_eq!(written(rendered), expected);
        }
    }
}
