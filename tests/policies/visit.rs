//! The console of a gateway with policies, as a browser uses it.

use crate::editor::Editor;
use crate::process::{Gateway, curl};

/// A browser that has signed in.
pub struct Visit<'a> {
    gateway: &'a Gateway,
    cookie: String,
}

impl<'a> Visit<'a> {
    pub fn of(gateway: &'a Gateway, editor: &Editor) -> Self {
        Self::with(gateway, editor.sign_in())
    }

    /// A browser that sends this field with each request.
    pub fn with(gateway: &'a Gateway, cookie: String) -> Self {
        Self { gateway, cookie }
    }

    pub fn page(&self, path: &str) -> String {
        curl(&[
            "-g",
            "-H",
            &self.cookie,
            &format!("http://{}/console{path}", self.gateway.admin),
        ])
    }

    /// The status of a page, and the page.
    pub fn read(&self, path: &str) -> (u16, String) {
        let url = format!("http://{}/console{path}", self.gateway.admin);
        let said = curl(&["-g", "-w", "\n%{http_code}", "-H", &self.cookie, &url]);
        let (page, status) = said.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), page.to_owned())
    }

    /// The token of a page that everybody with an account may see.
    pub fn form_token(&self) -> String {
        let page = self.page("/account");
        let (_, rest) = page
            .split_once("name=\"token\" value=\"")
            .unwrap_or_else(|| panic!("no token: {page}"));
        rest.split('"').next().unwrap().to_owned()
    }

    /// Sends a form as a browser does that is on a page of the console. The whole answer, with its
    /// head.
    pub fn submit(&self, path: &str, fields: &[(String, String)]) -> String {
        let origin = format!("Origin: http://{}", self.gateway.admin);
        let head = [
            "-g",
            "-i",
            "-X",
            "POST",
            "-H",
            &origin,
            "-H",
            "Sec-Fetch-Site: same-origin",
            "-H",
            &self.cookie,
        ];
        let mut args = head.map(str::to_owned).to_vec();
        args.extend(
            fields.iter().flat_map(|(name, value)| {
                ["--data-urlencode".to_owned(), format!("{name}={value}")]
            }),
        );
        args.push(format!("http://{}/console{path}", self.gateway.admin));
        curl(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

/// The values of the inputs of the form with this label.
pub fn form(page: &str, label: &str) -> Vec<(String, String)> {
    let start = format!("aria-label=\"{label}\"");
    let (_, form) = page
        .split_once(&start)
        .unwrap_or_else(|| panic!("no form {label}: {page}"));
    let inputs = form
        .split("</form>")
        .next()
        .unwrap()
        .split("<input ")
        .skip(1);
    let attribute = |input: &str, name: &str| {
        let (_, rest) = input.split_once(&format!(" {name}=\""))?;
        Some(unescape(rest.split('"').next()?))
    };
    inputs
        .map(|input| {
            let input = format!(" {}", input.split('>').next().unwrap());
            (
                attribute(&input, "name").unwrap(),
                attribute(&input, "value").unwrap_or_default(),
            )
        })
        .collect()
}

fn unescape(text: &str) -> String {
    let pairs = [
        ("&#60;", "<"),
        ("&#62;", ">"),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#38;", "&"),
    ];
    pairs
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

pub fn with(mut fields: Vec<(String, String)>, changes: &[(&str, &str)]) -> Vec<(String, String)> {
    for (name, value) in changes {
        fields.retain(|(known, _)| known != name);
        fields.push(((*name).to_owned(), (*value).to_owned()));
    }
    fields
}
